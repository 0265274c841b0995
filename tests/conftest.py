"""What holds for every test: hypothesis has no deadline, because a busy machine is no defect."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("magnetar", deadline=None)
settings.load_profile("magnetar")
