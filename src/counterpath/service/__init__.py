"""The HTTP API: explanations and predictions of fitted models as JSON. It needs the extra `app`."""
