"""Fast Cinder volumes for elastio. Importing this package, or `elastio_openstack.provider`, loads no OpenStack SDK."""
