"""What to type next, for who comes back later and has not seen what the last command said."""

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.relay import relay
from deploy.trace import status
from tests.faults.world import temporary


def test_the_status_names_the_command_that_comes_next():
    """From the first push to the score, after which nothing does."""
    with temporary() as world:
        kaggle, ours, show = Kaggle.connect(pace=Pace(0.02, 0.1, 30)), world.project, print

        def following() -> object:
            return status.now(kaggle, ours)["next"]

        run = relay.push(kaggle, ours, relay.TRAIN, show=show)
        assert relay.watch(kaggle, ours, run, show=show) == "COMPLETE"
        assert following() == f"invoke pull --run {run} --config digits"
        folder = relay.pull(kaggle, ours, run)
        assert following() == "invoke publish --config digits"
        relay.publish(kaggle, ours, run, folder, show=show)
        assert following() == "invoke push-infer --config digits"
        infer = relay.push(kaggle, ours, relay.INFER, artifact=folder / "artifact", show=show)
        relay.watch(kaggle, ours, infer, show=show)
        assert following() == f"invoke pull --run {infer} --config digits"
        inferred = relay.pull(kaggle, ours, infer)
        assert following() == f"invoke submit --run {infer} --config digits"
        relay.submit(kaggle, ours, infer, inferred, check=lambda *_: 1, show=show)
        assert following() is None
