#include "libcomm/world.h"

#include "libcomm/tcp/acceptor.h"
#include "libcomm/flight/dump.h"
#include "libcomm/group.h"
#include "libcomm/tcp/oob.h"
#include "libcomm/shm/shared_buffer.h"
#include "libcomm/wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- The first error --- */

/* Called under the lock. */
static void keep_cause(struct world *w, int cause_rank, const char *cause)
{
	if (w->cause_known)
		return;
	w->cause_rank = cause_rank;
	snprintf(w->cause, sizeof w->cause, "%s", cause);
	atomic_store(&w->cause_known, true);
}

/* Returns true if this was the first error. */
static bool end_operations(struct world *w, const struct err *why)
{
	pthread_mutex_lock(&w->lock);
	bool first = !world_failed(w);
	if (first) {
		keep_cause(w, w->rank, why->text);
		w->first = *why;
		atomic_store_explicit(&w->failed, true, memory_order_release);
		for (struct comm *c = w->groups; c; c = c->next)
			comm_group_interrupt(c, why);
		comm_acceptor_interrupt(w);
		pthread_cond_broadcast(&w->peers_changed);
	}
	pthread_mutex_unlock(&w->lock);
	return first;
}

void comm_world_fail(struct world *w, const struct err *why)
{
	pthread_mutex_lock(&w->dump_lock);
	if (end_operations(w, why))
		comm_dump_first_error(w);
	pthread_mutex_unlock(&w->dump_lock);
}

void comm_world_record_cause(struct world *w, int cause_rank, const char *cause)
{
	pthread_mutex_lock(&w->lock);
	keep_cause(w, cause_rank, cause);
	pthread_mutex_unlock(&w->lock);
}

void comm_world_fail_with_cause(struct world *w)
{
	struct err why = ERR_INIT;
	if (!atomic_load(&w->cause_known) || world_failed(w))
		return;
	/* Written once, before cause_known was set. */
	err_set(&why, ERR_PEER, "rank %d on host %s gave up: %s", w->cause_rank,
		world_host(w, w->cause_rank), w->cause);
	comm_world_fail(w, &why);
}

int comm_world_report_error(struct world *w, const struct err *why, struct err *e)
{
	bool dump_failed = atomic_load_explicit(&w->dump_failed, memory_order_acquire) &&
			   !strstr(why->text, w->dump_error);
	return err_set(e, why->code, "%s%s%s", why->text, dump_failed ? "; " : "",
		       dump_failed ? w->dump_error : "");
}

int comm_world_error(struct world *w, struct err *e)
{
	/* Written once, before `failed` was set. */
	return comm_world_report_error(w, &w->first, e);
}

void comm_world_free(struct world *w)
{
	comm_acceptor_close(w);
	comm_shared_buffers_free(w);
	if (w->listener >= 0)
		close(w->listener);
	for (int r = 0; w->peers && r < w->size; r++)
		if (w->peers[r].pidfd >= 0)
			close(w->peers[r].pidfd);
	free(w->peers);
	comm_dump_close(w);
	free(w->oob_peers);
	comm_wire_free(w->wire);
	pthread_cond_destroy(&w->peers_changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
