"""The explorer and the service: explanations in a browser and over HTTP. They need the extra `app`."""
