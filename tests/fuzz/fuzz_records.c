/* Any bytes over a checked or sealed connection: the data is correct to the last bit or the
 * connection is broken, and nothing else breaks. */
#include "libcomm/tcp/records.h"

#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES = 100, HEAD = 24 };

/* The first byte chooses the mode, the second the place at which a good record is changed. The
 * remaining bytes overwrite the record from there on, and follow it. */
static size_t make_input(struct records *from, const int fd[2], const uint8_t *data, size_t size,
			 unsigned char out[8192])
{
	unsigned char good[BYTES];
	memset(good, 7, sizeof good);
	if (comm_records_put(from, fd[0], &(struct iovec){ good, sizeof good }, 1) != BYTES ||
	    recv(fd[1], out, HEAD + BYTES, MSG_DONTWAIT) != HEAD + BYTES)
		abort();
	size_t at = data[1] % (HEAD + BYTES), rest = size - 2 < 8192 - at ? size - 2 : 8192 - at;
	memcpy(out + at, data + 2, rest);
	return at + rest > HEAD + BYTES ? at + rest : HEAD + BYTES;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char key[RECORD_KEY] = { 1 }, wire[8192], want[8192], got[BYTES + 100];
	struct records *from, *to;
	int fd[2];
	if (size < 2)
		return 0;
	enum comm_integrity mode = data[0] & 1 ? COMM_INTEGRITY_SEAL : COMM_INTEGRITY_CHECKSUM;
	bool aes = data[0] & 2 && comm_records_have_aes();
	if (sodium_init() < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0 ||
	    comm_records_new(mode, aes, key, key, &from, NULL) ||
	    comm_records_new(mode, aes, key, key, &to, NULL))
		abort();
	size_t n = make_input(from, fd, data, 2, want), all = make_input(to, fd, data, size, wire);
	if (n > all || send(fd[0], wire, all, 0) != (ssize_t)all)
		abort();
	for (int i = 0; i < 5; i++)
		if (comm_records_get(to, fd[1], &(struct iovec){ got, 1 + data[0] % sizeof got },
				     1) > 0 &&
		    memcmp(wire, want, HEAD + BYTES))
			abort(); /* a changed record was accepted */
	comm_records_free(from);
	comm_records_free(to);
	close(fd[0]);
	close(fd[1]);
	return 0;
}
