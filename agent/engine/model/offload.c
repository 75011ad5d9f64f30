#include "agent/engine/model/stage.h"

#include "base/spill.h"

#include <stdlib.h>
#include <string.h>

/* Which layer a staging buffer holds or receives. */
struct staged {
	const struct slot *slot; /* NULL: the contents are not needed */
	int layer;               /* number in the chunk */
	uint64_t ticket;         /* the last copy from or to the buffer */
};

struct offload {
	char *staging; /* [STAGED] buffers of `place` bytes, in the backend's memory */
	struct staged places[STAGED];
	int64_t place;
	void *host; /* [chunks][slots][layers], one after the other */
	size_t host_bytes;
	int64_t *chunk_at; /* [n_chunks] offset of each chunk */
	int64_t *slot;     /* [n_chunks] bytes of one slot */
};

static int open_host(struct model *m, struct offload *o, struct err *e)
{
	int64_t bytes = 0;
	o->chunk_at = calloc((size_t)m->n_chunks, sizeof *o->chunk_at);
	o->slot = calloc((size_t)m->n_chunks, sizeof *o->slot);
	if (!o->chunk_at || !o->slot)
		return err_set(e, ERR_NOMEM, "no memory for the offloaded activations of %d chunks",
			       m->n_chunks);
	for (int i = 0; i < m->n_chunks; i++) {
		o->chunk_at[i] = bytes;
		o->slot[i] = activations_offloaded(&m->d, &m->chunks[i].stage);
		bytes += o->slot[i] * m->chunks[i].n_slots;
	}
	o->host_bytes = (size_t)bytes;
	if (!m->d.device)
		return spill_open(m->spill_dir, "offloaded activations", o->host_bytes, &o->host,
				  e);
	o->host = backend_host_alloc(m->backend, o->host_bytes ? o->host_bytes : 1);
	if (!o->host)
		return err_set(e, ERR_NOMEM,
			       "offloaded activations: no host memory for %zu bytes that the "
			       "device can copy to; free some memory, or set "
			       "offload.activations = no",
			       o->host_bytes);
	return 0;
}

int model_offload_open(struct model *m, struct offload **out, struct err *e)
{
	struct offload *o = *out = calloc(1, sizeof *o);
	if (!o)
		return err_set(e, ERR_NOMEM, "no memory for the offloaded activations");
	struct stage stages[m->n_chunks];
	for (int i = 0; i < m->n_chunks; i++)
		stages[i] = m->chunks[i].stage;
	o->place = activations_staged(&m->d, stages, m->n_chunks);
	o->staging = backend_alloc(m->backend, (size_t)(STAGED * o->place));
	if (!o->staging)
		return err_set(e, ERR_NOMEM,
			       "staged activations: no memory for %lld bytes; lower batch.micro",
			       (long long)(STAGED * o->place));
	return open_host(m, o, e);
}

void model_offload_close(struct model *m)
{
	struct offload *o = m->offload;
	if (!o)
		return;
	if (m->d.device) {
		backend_sync(m->backend, NULL); /* copies may still be running */
		backend_host_free(m->backend, o->host);
	} else if (o->host) {
		spill_close(o->host, o->host_bytes);
	}
	if (o->staging)
		backend_free(m->backend, o->staging);
	free(o->chunk_at);
	free(o->slot);
	free(o);
	m->offload = NULL;
}

char *model_offload_staged(const struct offload *o, int layer)
{
	return o->staging + layer % STAGED * o->place;
}

/* Returns a layer's address in host memory, and sets its size. */
static char *place_of(const struct pass *p, int i, int64_t *bytes)
{
	const struct model *m = p->m;
	const struct offload *o = m->offload;
	int64_t chunk = p->chunk - m->chunks, slot = p->slot - p->chunk->slots,
		at = o->chunk_at[chunk] + slot * o->slot[chunk];
	for (int l = 0; l < i; l++)
		at += activations_layer_bytes(&m->d, p->chunk->stage.layer_lo + l, l == 0);
	*bytes = activations_layer_bytes(&m->d, p->chunk->stage.layer_lo + i, i == 0);
	return (char *)o->host + at;
}

/* --- On a device: copies overlap with the passes --- */

static struct staged *staged_of(const struct pass *p, int i)
{
	return &p->m->offload->places[i % STAGED];
}

/* Operations that are queued after this call may overwrite the staging buffer. */
static void wait_until_free(const struct pass *p, int i)
{
	struct staged *t = staged_of(p, i);
	if (t->ticket)
		backend_side_wait(p->m->backend, t->ticket);
	t->slot = NULL;
}

static void copy_out(struct pass *p, int i)
{
	struct staged *t = staged_of(p, i);
	int64_t bytes;
	char *host = place_of(p, i, &bytes);
	*t = (struct staged){ p->slot, i,
			      backend_side_copy(p->m->backend, host,
						model_offload_staged(p->m->offload, i),
						(size_t)bytes) };
}

/* The copy starts after all queued operations, the last of which read the buffer, and after the
 * copy of the buffer to the host. */
static void copy_in(struct pass *p, int i)
{
	struct staged *t = staged_of(p, i);
	int64_t bytes;
	const char *host = place_of(p, i, &bytes);
	if (t->slot == p->slot && t->layer == i)
		return;
	*t = (struct staged){ p->slot, i,
			      backend_side_copy(p->m->backend,
						model_offload_staged(p->m->offload, i), host,
						(size_t)bytes) };
}

/* Fetches the previous layer, too, while this one is computed. */
static void fetch_ahead(struct pass *p, int i)
{
	copy_in(p, i);
	if (i > 0)
		copy_in(p, i - 1);
	backend_side_wait(p->m->backend, staged_of(p, i)->ticket);
}

/* --- What layers call --- */

void model_offload_begin(struct pass *p, int i)
{
	if (p->m->offload && p->m->d.device)
		wait_until_free(p, i);
}

void model_offload_store(struct pass *p, int i)
{
	int64_t bytes;
	if (!p->m->offload)
		return;
	if (p->m->d.device) {
		copy_out(p, i);
		return;
	}
	char *host = place_of(p, i, &bytes);
	memcpy(host, model_offload_staged(p->m->offload, i), (size_t)bytes);
}

void model_offload_fetch(struct pass *p, int i)
{
	int64_t bytes;
	if (!p->m->offload)
		return;
	if (p->m->d.device) {
		fetch_ahead(p, i);
		return;
	}
	const char *host = place_of(p, i, &bytes);
	memcpy(model_offload_staged(p->m->offload, i), host, (size_t)bytes);
}
