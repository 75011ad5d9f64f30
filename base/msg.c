#include "base/msg.h"

#include "base/json_member.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 8 };

void msg_fini(struct msg *m)
{
	json_decref(m->body);
	*m = (struct msg){ 0 };
}

static void put_le(unsigned char *to, uint32_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		to[i] = (unsigned char)(value >> 8 * i);
}

static uint32_t get_le(const unsigned char *from, int bytes)
{
	uint32_t value = 0;
	for (int i = 0; i < bytes; i++)
		value |= (uint32_t)from[i] << 8 * i;
	return value;
}

int msg_pack(enum msg_type type, uint32_t generation, json_t *body, struct buf *out, struct err *e)
{
	char *text = body ? json_dumps(body, JSON_COMPACT) : strdup("{}");
	if (!text)
		return err_set(e, ERR_NOMEM, "message %s: no memory for its text", msg_word(type));
	unsigned char head[HEAD_BYTES] = { 0 };
	put_le(head, (uint32_t)type, 2);
	put_le(head + 4, generation, 4);
	buf_add(out, head, sizeof head);
	buf_puts(out, text);
	free(text);
	if (buf_failed(out))
		return err_set(e, ERR_NOMEM, "message %s: no memory for its text", msg_word(type));
	return 0;
}

int msg_unpack(const void *data, size_t len, uint32_t generation, struct msg *m, struct err *e)
{
	const unsigned char *head = data;
	if (len < HEAD_BYTES)
		return err_set(e, ERR_PROTO, "message of %zu bytes: shorter than its header", len);
	uint32_t type = get_le(head, 2), zero = get_le(head + 2, 2), of = get_le(head + 4, 4);
	if (zero)
		return err_set(e, ERR_PROTO, "message: reserved bytes are not zero");
	if (type <= MSG_NONE || type >= MSG_COUNT)
		return err_set(e, ERR_PROTO,
			       "message: unknown type %u; is the peer another version of muster?",
			       type);
	const char *word = msg_word((enum msg_type)type);
	struct err why = ERR_INIT;
	json_t *body;
	if (json_member_object((const char *)data + HEAD_BYTES, len - HEAD_BYTES, &body, &why))
		return err_set(e, ERR_PROTO, "message %s: %s", word, why.text);
	*m = (struct msg){ (enum msg_type)type, of, body };
	if (of != generation)
		return err_set(e, ERR_STALE,
			       "message %s: it is of generation %u, but this is generation %u",
			       word, of, generation);
	return 0;
}
