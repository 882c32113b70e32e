"""Keeps messages for a function: an SQS queue with its dead-letter queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

BATCH_MAX = 10
"""SQS takes and gives no more messages in one call."""
_WAITING = (
    "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was received this time."""

    message_id: str
    receipt_handle: str
    body: str
    attributes: dict[str, str]

    @property
    def received(self) -> int:
        """How often it has been received, this time included."""
        return int(self.attributes["ApproximateReceiveCount"])


class Queue:
    """A queue and its dead-letter queue, which takes what was received ``received_max`` times and is still there.

    ``client`` is boto3's for SQS.  ``visibility_s`` is how long a received message is hidden from others.
    """

    def __init__(self, client: Any, name: str, *, visibility_s: int = 30, received_max: int = 5) -> None:
        self._client = client
        self._dead_url: str = client.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        redrive = {"deadLetterTargetArn": self._arn_of(self._dead_url), "maxReceiveCount": received_max}
        attributes = {"VisibilityTimeout": str(visibility_s), "RedrivePolicy": json.dumps(redrive)}
        self.url: str = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        self.arn = self._arn_of(self.url)

    def send(self, bodies: Sequence[str]) -> list[str]:
        """Send messages; returns their ids in the same order."""
        ids: list[str] = []
        for start in range(0, len(bodies), BATCH_MAX):
            entries = [
                {"Id": str(index), "MessageBody": body}
                for index, body in enumerate(bodies[start : start + BATCH_MAX])
            ]
            sent = self._client.send_message_batch(QueueUrl=self.url, Entries=entries)
            by_id = {entry["Id"]: entry["MessageId"] for entry in sent["Successful"]}
            ids += [by_id[entry["Id"]] for entry in entries]
        return ids

    def receive(self, count: int, *, wait_s: int = 0) -> list[Message]:
        """Up to ``count`` messages that nobody else holds; waits for the first."""
        got = self._client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=min(count, BATCH_MAX),
            WaitTimeSeconds=wait_s,
            MessageSystemAttributeNames=["All"],
        )
        return [
            Message(found["MessageId"], found["ReceiptHandle"], found["Body"], found["Attributes"])
            for found in got.get("Messages", ())
        ]

    def delete(self, message: Message) -> bool:
        """Delete a message; False where it has been received again since, so that another one holds it."""
        return self._if_held(self._client.delete_message, message)

    def show(self, message: Message, *, after_s: int = 0) -> bool:
        """Let others receive a message ``after_s`` from now, whatever its visibility timeout."""
        return self._if_held(self._client.change_message_visibility, message, VisibilityTimeout=after_s)

    def is_empty(self) -> bool:
        """Whether there is no message, visible or hidden, outside the dead-letter queue."""
        found = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=list(_WAITING))
        return not any(int(found["Attributes"][name]) for name in _WAITING)

    def dead_ids(self) -> list[str]:
        """The ids of the messages in the dead-letter queue, which are taken out of it."""
        ids: list[str] = []
        while True:
            got = self._client.receive_message(QueueUrl=self._dead_url, MaxNumberOfMessages=BATCH_MAX)
            found = got.get("Messages", ())
            if not found:
                return ids
            for message in found:
                ids.append(message["MessageId"])
                self._client.delete_message(QueueUrl=self._dead_url, ReceiptHandle=message["ReceiptHandle"])

    def record(self, message: Message) -> dict[str, Any]:
        """The message as a record of a Lambda event."""
        return {
            "messageId": message.message_id,
            "receiptHandle": message.receipt_handle,
            "body": message.body,
            "attributes": message.attributes,
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": self.arn,
            "awsRegion": self.arn.split(":")[3],
        }

    def _if_held(self, call: Any, message: Message, **options: Any) -> bool:
        try:
            call(QueueUrl=self.url, ReceiptHandle=message.receipt_handle, **options)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _NOT_HELD:
                raise
            return False
        return True

    def _arn_of(self, url: str) -> str:
        found = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(found["Attributes"]["QueueArn"])


_NOT_HELD = ("ReceiptHandleIsInvalid", "InvalidParameterValue", "AWS.SimpleQueueService.MessageNotInflight")
