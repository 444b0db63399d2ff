"""Tests of agentix.bundle."""
