"""The parts of check_calls.py."""
