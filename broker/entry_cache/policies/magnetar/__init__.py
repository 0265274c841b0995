"""The policy `magnetar`: segments in a queue, who will read them, and which of them go first when there is no room."""
