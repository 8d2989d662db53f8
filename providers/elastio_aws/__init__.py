"""Fast EBS volumes for elastio. Importing this package, or `elastio_aws.provider`, loads no AWS SDK."""
