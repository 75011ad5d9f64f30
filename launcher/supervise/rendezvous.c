#include "launcher/supervise/rendezvous.h"

#include "launcher/supervise/supervisor.h"

#include <stdlib.h>

enum { PART_BYTES = 256 * 1024 }; /* of one message, about; MSG_MAX is its limit */

void supervise_rendezvous_reset(struct supervisor *s)
{
	struct rendezvous_state *r = &s->rendezvous;
	for (int i = 0; i < r->room; i++)
		json_decref(r->values[i]);
	free(r->values);
	*r = (struct rendezvous_state){ 0 };
}

void supervise_rendezvous_close(struct supervisor *s)
{
	supervise_rendezvous_reset(s);
}

/* Packed once for all ranks. */
static int send_part(struct supervisor *s, int first, json_t *values, struct err *e)
{
	struct buf packed = BUF_INIT;
	json_t *body = msg_world_endpoints_json(
		&(struct msg_world_endpoints){ .first = first, .values = values });
	int rc = body ? msg_pack(MSG_WORLD_ENDPOINTS, s->generation, body, &packed, e)
		      : err_set(e, ERR_NOMEM, "no memory for the endpoints of the ranks");
	for (int r = 0; !rc && r < s->world; r++)
		if (s->ranks[r].connection) /* a failure closes the connection */
			launcher_connection_send_packed(s->ranks[r].connection, &packed, NULL);
	json_decref(body);
	buf_fini(&packed);
	return rc;
}

static int send_all(struct supervisor *s, struct err *e)
{
	const struct rendezvous_state *r = &s->rendezvous;
	int rc = 0;
	for (int first = 0, next = 0; !rc && first < s->world; first = next) {
		json_t *values = json_array();
		size_t bytes = 0;
		for (; next < s->world && bytes < PART_BYTES; next++) {
			bytes += json_dumpb(r->values[next], NULL, 0, JSON_COMPACT);
			json_array_append(values, r->values[next]);
		}
		rc = send_part(s, first, values, e);
		json_decref(values);
	}
	return rc;
}

int supervise_rendezvous_note(struct supervisor *s, int rank, json_t *values, struct err *e)
{
	struct rendezvous_state *r = &s->rendezvous;
	if (!r->values) {
		r->values = calloc((size_t)s->world, sizeof(json_t *));
		r->room = r->values ? s->world : 0;
	}
	if (!r->values)
		return err_set(e, ERR_NOMEM, "no memory for the endpoints of %d ranks", s->world);
	if (s->by_pmix || r->values[rank] || !json_is_object(values))
		return err_set(e, ERR_PROTO,
			       "message endpoints: it was sent twice or at the wrong time");
	r->values[rank] = json_incref(values);
	return ++r->n == s->world ? send_all(s, e) : 0;
}
