/* Replaces base/seal.c where libsodium is not installed. Nothing is sealed, since all ranks are on one host
 * (sodium.h); whoever tries gets an error. */
#include "base/seal.h"

void seal_frame(struct seal *s, struct buf *out, const char *body, size_t len)
{
	(void)s;
	(void)body;
	(void)len;
	out->failed = true;
}

int seal_open(struct seal *s, const unsigned char *sealed, size_t len, char **body, struct err *why)
{
	(void)s;
	(void)sealed;
	(void)len;
	(void)body;
	return err_set(why, ERR_UNSUPPORTED,
		       "this program has been built without libsodium; run all ranks on one host");
}
