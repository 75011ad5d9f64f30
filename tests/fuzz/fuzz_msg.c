/* Any bytes as an opened body: they are refused, or they give a message that can be sent again. Its fields
 * are refused, or they give the same fields again after they were sent. */
#include "base/messages.h"
#include "base/msg.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* clang-format off */
#define READ_FIELDS(id, name, fields, sender, doc) \
	static void read_##name(const json_t *body) \
	{ \
		struct msg_##name m, again; \
		struct err e = ERR_INIT; \
		if (msg_##name##_read(body, &m, &e)) { \
			if (e.code != ERR_PROTO) \
				abort(); \
			return; \
		} \
		json_t *sent = msg_##name##_json(&m); \
		if (!sent || msg_##name##_read(sent, &again, NULL)) \
			abort(); \
		json_t *twice = msg_##name##_json(&again); \
		if (!json_equal(sent, twice)) \
			abort(); \
		json_decref(twice); \
		json_decref(sent); \
	}
MSG_TYPES(READ_FIELDS)

#define READER(id, name, fields, sender, doc) [id] = read_##name,
static void (*const readers[MSG_COUNT])(const json_t *body) = { MSG_TYPES(READER) };
/* clang-format on */

/* The place of a program's task is inside the welcome. */
READ_FIELDS(, program, , , )

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct msg m = { 0 };
	struct err e = ERR_INIT;
	int rc = msg_unpack(data, size, 1, &m, &e);
	if (rc && e.code != ERR_PROTO && e.code != ERR_STALE)
		abort();
	if (!rc && readers[m.type])
		readers[m.type](m.body);
	if (!rc && m.type == MSG_WELCOME)
		read_program(json_object_get(m.body, "program"));
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
