"""Write an HTML report about a training run into the run's output folder, as report.html."""
