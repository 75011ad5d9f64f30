/* Any bytes as an opened body: they are refused, or they give a message that can be sent again. */
#include "base/msg.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct msg m = { 0 };
	struct err e = ERR_INIT;
	int rc = msg_unpack(data, size, 1, &m, &e);
	if (rc && e.code != ERR_PROTO && e.code != ERR_STALE)
		abort();
	if (!rc) {
		struct buf again = BUF_INIT;
		struct msg copy = { 0 };
		if (msg_pack(m.type, 1, m.body, &again, NULL) ||
		    msg_unpack(again.data, again.len, 1, &copy, NULL) ||
		    !json_equal(copy.body, m.body))
			abort();
		msg_fini(&copy);
		buf_fini(&again);
	}
	msg_fini(&m);
	return 0;
}
