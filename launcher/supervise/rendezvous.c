#include "launcher/supervise/rendezvous.h"

#include "launcher/supervise/supervisor.h"

#include <stdlib.h>

enum { PART_BYTES = 32 * 1024 }; /* of one message, about; MSG_MAX is its limit */

void supervise_rendezvous_reset(struct supervisor *s)
{
	struct rendezvous_state *r = &s->rendezvous;
	for (int i = 0; i < r->room; i++)
		json_decref(r->values[i]);
	free(r->values);
	for (int i = 0; i < r->n_parts; i++)
		buf_fini(&r->parts[i]);
	free(r->parts);
	*r = (struct rendezvous_state){ 0 };
}

void supervise_rendezvous_close(struct supervisor *s)
{
	supervise_rendezvous_reset(s);
}

/* Packs the endpoints of the ranks from `first` on as one message. Returns the next rank; -1: error. */
static int pack_part(const struct supervisor *s, int first, struct buf *out, struct err *e)
{
	json_t *const *from = s->rendezvous.values;
	json_t *values = json_array(), *body;
	size_t bytes = 0;
	int next = first, rc = values ? 0 : -1;
	for (; !rc && next < s->world && bytes < PART_BYTES; next++) {
		bytes += json_dumpb(from[next], NULL, 0, JSON_COMPACT);
		rc = json_array_append(values, from[next]);
	}
	body = rc ? NULL
		  : msg_world_endpoints_json(
			    &(struct msg_world_endpoints){ .first = first, .values = values });
	rc = body ? msg_pack(MSG_WORLD_ENDPOINTS, s->generation, body, out, e)
		  : err_set(e, ERR_NOMEM, "no memory for the endpoints of the ranks");
	json_decref(values);
	json_decref(body);
	return rc ? -1 : next;
}

static int pack_all(struct supervisor *s, struct err *e)
{
	struct rendezvous_state *r = &s->rendezvous;
	r->parts = calloc((size_t)s->world, sizeof *r->parts); /* at most one for each rank */
	if (!r->parts)
		return err_set(e, ERR_NOMEM, "no memory for the endpoints of %d ranks", s->world);
	for (int next = 0; next < s->world;) {
		next = pack_part(s, next, &r->parts[r->n_parts++], e);
		if (next < 0)
			return -1;
	}
	return 0;
}

void supervise_rendezvous_go_on(struct supervisor *s, int rank)
{
	const struct rendezvous_state *r = &s->rendezvous;
	struct rank_state *k = &s->ranks[rank];
	while (k->connection && k->endpoints < r->n_parts &&
	       launcher_connection_is_drained(k->connection))
		/* a failure closes the connection */
		launcher_connection_send_packed(k->connection, &r->parts[k->endpoints++], NULL);
}

static int send_all(struct supervisor *s, struct err *e)
{
	if (pack_all(s, e))
		return -1;
	for (int rank = 0; rank < s->world; rank++)
		supervise_rendezvous_go_on(s, rank);
	return 0;
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
