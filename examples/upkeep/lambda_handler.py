"""A Lambda function that maintains the table of its event, by a schedule of EventBridge (docs/maintain.md)."""

import safewrite as sw


def handler(event, context):
    report = sw.open(event["table"]).maintain(budget_s=300)  # well below the function's timeout
    if report.in_doubt is not None:
        raise RuntimeError(str(report))  # the next run decides
    return report.to_dict()
