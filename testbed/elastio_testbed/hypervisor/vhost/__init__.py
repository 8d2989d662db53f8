"""The disk server of user-mode Linux: virtio block devices over vhost-user.

Theory of operation. A vhost-user device is served by another process than the machine's: over a Unix socket it gets the
machine's memory, as a file to map, and for each queue two descriptors, one that the machine signals when it has queued
requests and one that the server signals when it has answered some (`messages`). Requests and answers are in the queue
itself, in the machine's memory (`virtqueue`). So no data is copied but between that memory and the disk's file.

One process serves all disks of one machine, in one thread, so the order of all events is known. It is a process of its
own because what is measured must not wait for the laboratory's Python. The laboratory talks to it through `storage`.

A disk has a serial of 20 characters, a limit that the machine cannot see (`throttle`), counters, and a write cache: the
kernel flushes it, as that of a real disk. Flushing a file does nothing, as the host's page cache survives the end of
the machine; flushing a disk behind NBD makes its writes durable there (`store`). A disk that is broken fails every
request at once, also those that wait for their turn under the limit.
"""
