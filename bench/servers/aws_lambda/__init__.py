"""Runs Lambda functions on this machine: AWS's own Python runtime behind a Runtime API of ours, fed by SQS."""
