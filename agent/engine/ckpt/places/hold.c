#include "agent/engine/ckpt/places/hold.h"

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/ckpt/storage/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

bool ckpt_hold_take(struct ckpt_hold *h, const char *path, enum ckpt_hold_for why)
{
	char name[PATH_MAX];
	bool removes = why == CKPT_HOLD_REMOVE;
	struct flock whole = { .l_type = removes ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET };
	h->fd = -1;
	if (*ckpt_storage_of(path)->ops->scheme ||
	    ckpt_storage_join(name, sizeof name, path, MANIFEST_NAME, NULL))
		return true;
	int fd = open(name, (removes ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return true; /* who needs the file reports why it cannot be read */
	if (!fcntl(fd, F_OFD_SETLK, &whole)) {
		h->fd = fd;
		return true;
	}
	bool held = errno == EAGAIN || errno == EACCES;
	close(fd);
	return !held;
}

void ckpt_hold_release(struct ckpt_hold *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
}
