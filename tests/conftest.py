"""Of all tests.  No clock decides whether one passes: these machines are shared, and examples take what they take."""

from hypothesis import HealthCheck, settings

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")
