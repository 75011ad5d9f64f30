#include "base/parts.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { BASE64 = sodium_base64_VARIANT_ORIGINAL };

static int check_order(const struct parts *p, const struct msg_helper_part *m, struct err *e)
{
	if (m->fence != p->fence)
		return err_set(e, ERR_PROTO,
			       "message helper_part: it is of fence %lld, but fence %lld is open",
			       (long long)m->fence, (long long)p->fence);
	if (m->parts < 1 || m->parts > PARTS_MOST || m->part != p->next || m->part >= m->parts ||
	    (p->next && m->parts != p->parts))
		return err_set(e, ERR_PROTO,
			       "message helper_part: part %d of %d, but part %d was expected",
			       m->part, m->parts, p->next);
	return 0;
}

int parts_add(struct parts *p, const struct msg_helper_part *m, struct err *e)
{
	if (check_order(p, m, e))
		return -1;
	size_t len = 0, text = strlen(m->data);
	char *to = buf_room(&p->data, PARTS_BYTES);
	if (!to)
		return err_set(e, ERR_NOMEM, "no memory for what ranks have published");
	bool last = m->part == m->parts - 1;
	if (sodium_base642bin((unsigned char *)to, PARTS_BYTES, m->data, text, NULL, &len, NULL,
			      BASE64) ||
	    (!last && len != PARTS_BYTES))
		return err_set(e, ERR_PROTO, "message helper_part: part %d has no valid data",
			       m->part);
	p->data.len += len;
	p->parts = m->parts;
	p->next++;
	return last;
}

void parts_renew(struct parts *p)
{
	buf_clear(&p->data);
	p->next = 0;
	p->fence++;
}

void parts_fini(struct parts *p)
{
	buf_fini(&p->data);
}

int parts_count(size_t len)
{
	size_t parts = len ? (len - 1) / PARTS_BYTES + 1 : 1;
	return parts > PARTS_MOST ? -1 : (int)parts;
}

json_t *parts_json(int64_t fence, const struct buf *data, int part)
{
	size_t from = (size_t)part * PARTS_BYTES, left = data->len - from,
	       len = left < PARTS_BYTES ? left : PARTS_BYTES,
	       room = sodium_base64_encoded_len(len, BASE64);
	char *text = malloc(room);
	if (!text)
		return NULL;
	sodium_bin2base64(text, room, (const unsigned char *)data->data + from, len, BASE64);
	json_t *body = msg_helper_part_json(&(struct msg_helper_part){
		.fence = fence, .part = part, .parts = parts_count(data->len), .data = text });
	free(text);
	return body;
}
