#include "launcher/pmix/exchange.h"

#include "launcher/pmix/frame.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* A fence that waits for the owner's answer. */
struct fence {
	pmix_modex_cbfunc_t done;
	void *arg;
	struct fence *next;
};

/* libpmix has one server per process, so this has one, too. */
static struct {
	pthread_mutex_t lock; /* of `out` and the list; libpmix's thread adds to both */
	struct buf out;
	struct fence *first, **last;
	int wake; /* readable: something was added */
} exchange = { .lock = PTHREAD_MUTEX_INITIALIZER, .wake = -1 };

int local_exchange_open(struct err *e)
{
	exchange.last = &exchange.first;
	exchange.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return exchange.wake < 0 ? err_errno(e, ERR_NOMEM, "PMIx server: cannot make an eventfd")
				 : 0;
}

/* libpmix also lends `data`, or gives it away, depending on its version: it is copied and not
 * freed. A process that lives for one launch loses a few kilobytes. */
pmix_status_t local_exchange_fence(const pmix_proc_t procs[], size_t n_procs,
				   const pmix_info_t info[], size_t n_info, char *data, size_t len,
				   pmix_modex_cbfunc_t done, void *arg)
{
	(void)info;
	(void)n_info;
	if (n_procs != 1 || procs[0].rank != PMIX_RANK_WILDCARD || len > UINT32_MAX)
		return PMIX_ERR_NOT_SUPPORTED;
	struct fence *f = calloc(1, sizeof *f);
	if (!f)
		return PMIX_ERR_NOMEM;
	*f = (struct fence){ .done = done, .arg = arg };
	pthread_mutex_lock(&exchange.lock);
	local_frame_add(&exchange.out, LOCAL_FRAME_FENCE, data, len);
	bool failed = buf_failed(&exchange.out);
	if (!failed) {
		*exchange.last = f;
		exchange.last = &f->next;
	}
	pthread_mutex_unlock(&exchange.lock);
	if (failed) {
		free(f);
		return PMIX_ERR_NOMEM;
	}
	uint64_t one = 1;
	return write(exchange.wake, &one, sizeof one) == sizeof one ? PMIX_SUCCESS : PMIX_ERROR;
}

static void release_copy(void *copy)
{
	free(copy);
}

/* Answers the oldest open fence. An answer that nobody waits for is ignored. */
static void end_fence(const char *data, size_t len)
{
	pthread_mutex_lock(&exchange.lock);
	struct fence *f = exchange.first;
	if (f)
		exchange.first = f->next;
	if (!exchange.first)
		exchange.last = &exchange.first;
	pthread_mutex_unlock(&exchange.lock);
	if (!f)
		return;
	char *copy = malloc(len ? len : 1);
	if (copy)
		memcpy(copy, data, len);
	f->done(copy ? PMIX_SUCCESS : PMIX_ERR_NOMEM, copy, copy ? len : 0, f->arg, release_copy,
		copy);
	free(f);
}

/* Sends what the socket takes now; false: the owner is gone. */
static bool send_out(int fd, bool *more)
{
	bool there = true;
	pthread_mutex_lock(&exchange.lock);
	while (exchange.out.len) {
		ssize_t n = send(fd, exchange.out.data, exchange.out.len,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		there = n > 0 || errno == EAGAIN;
		if (n <= 0)
			break;
		buf_drop(&exchange.out, (size_t)n);
	}
	*more = exchange.out.len > 0;
	pthread_mutex_unlock(&exchange.lock);
	return there;
}

void local_exchange_serve(int fd)
{
	struct buf in = BUF_INIT;
	bool more = false;
	uint64_t count;
	for (;;) {
		struct pollfd p[] = { { fd, (short)(POLLIN | (more ? POLLOUT : 0)), 0 },
				      { exchange.wake, POLLIN, 0 } };
		if (poll(p, 2, -1) < 0)
			continue;
		if (read(exchange.wake, &count, sizeof count) < 0 && errno != EAGAIN)
			break;
		if (!send_out(fd, &more) || (p[0].revents && local_frame_receive(fd, &in) < 0))
			break;
		enum local_frame type;
		char *data;
		for (size_t len; local_frame_peek(&in, &type, &data, &len); local_frame_drop(&in))
			if (type == LOCAL_FRAME_FENCED)
				end_fence(data, len);
	}
	buf_fini(&in);
}
