"""The policy `magnetar`: segments in one queue, judged by the positions of the readers of their logs."""
