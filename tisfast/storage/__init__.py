"""Models from elsewhere: s3, gs, az, https, hf and mlflow, in a verified local cache (docs/storage.md).  Layer 3.

`Storage` is the face of it; nothing here is imported when every repository is a local folder, except `face`.
"""
