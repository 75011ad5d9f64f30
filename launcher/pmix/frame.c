#include "launcher/pmix/frame.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

enum { HEAD = sizeof(uint32_t) + 1, READ_MOST = 65536 };

void local_frame_add(struct buf *out, enum local_frame type, const void *data, size_t len)
{
	char head[HEAD] = { 0 };
	uint32_t length = (uint32_t)len;
	memcpy(head, &length, sizeof length);
	head[sizeof length] = (char)type;
	buf_add(out, head, sizeof head);
	buf_add(out, data, len);
}

static size_t frame_length(const struct buf *in)
{
	uint32_t length;
	memcpy(&length, in->data, sizeof length);
	return length;
}

bool local_frame_peek(struct buf *in, enum local_frame *type, char **data, size_t *len)
{
	if (in->len < HEAD || in->len - HEAD < frame_length(in))
		return false;
	*type = (enum local_frame)in->data[sizeof(uint32_t)];
	*data = in->data + HEAD;
	*len = frame_length(in);
	return true;
}

void local_frame_drop(struct buf *in)
{
	buf_drop(in, HEAD + frame_length(in));
}

int local_frame_receive(int fd, struct buf *in)
{
	char *to = buf_room(in, READ_MOST);
	if (!to) {
		errno = ENOMEM;
		return -1;
	}
	ssize_t n = recv(fd, to, READ_MOST, MSG_DONTWAIT);
	if (n > 0)
		in->len += (size_t)n;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	errno = n ? errno : 0;
	return n > 0 ? 1 : -1;
}
