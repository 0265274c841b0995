"""Object storage: named objects that are written whole, on a file system or an S3 service."""
