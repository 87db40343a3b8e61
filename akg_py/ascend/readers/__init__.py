"""Compiled readers of the one table: values, time, checks.

Each is a loop over rows on integer addresses.
"""
