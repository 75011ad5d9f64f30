/* Replaces records.c of libcomm where xxHash is not installed. No connection is checked or sealed, since
 * ranks of one host have none (sodium.h). */
#include "libcomm/tcp/records.h"

#include <errno.h>

int comm_records_new(enum comm_integrity mode, bool aes, const unsigned char sending[RECORD_KEY],
		     const unsigned char receiving[RECORD_KEY], struct records **out, struct err *e)
{
	(void)mode;
	(void)aes;
	(void)sending;
	(void)receiving;
	(void)out;
	return err_set(e, ERR_UNSUPPORTED,
		       "network.integrity: this program has been built without xxHash; use none");
}

void comm_records_free(struct records *r)
{
	(void)r;
}

bool comm_records_have_aes(void)
{
	return false;
}

ssize_t comm_records_put(struct records *r, int fd, const struct iovec *v, int n)
{
	(void)r;
	(void)fd;
	(void)v;
	(void)n;
	errno = ENOSYS;
	return RECORDS_END;
}

ssize_t comm_records_get(struct records *r, int fd, const struct iovec *v, int n)
{
	return comm_records_put(r, fd, v, n);
}

unsigned long long comm_records_number(const struct records *r)
{
	(void)r;
	return 0;
}
