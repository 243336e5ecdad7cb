"""The list of faults agrees with the code and the tests."""

from tests.mutation import faults


def test_each_listed_fault_fits_the_code_and_its_test_exists():
    assert list(faults.problems()) == []
    assert len(faults.listed()) == 65
