"""What schedules are made of: cron, recurrence rules, zones and durations."""
