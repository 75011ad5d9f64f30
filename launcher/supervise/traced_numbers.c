#include "launcher/supervise/traced_numbers.h"

#include "launcher/supervise/supervisor.h"
#include "launcher/supervise/suspects.h"

#include <string.h>

/* Each message names at most as many ranks (agent/engine/train/blame.h). */
enum { RANKS_MOST = 8 };

struct blamed {
	int ranks[RANKS_MOST], n;
};

static int read_ranks(const struct supervisor *s, const json_t *list, struct blamed *out,
		      struct err *e)
{
	size_t i;
	json_t *item;
	out->n = 0;
	if (!json_is_array(list) || json_array_size(list) > RANKS_MOST)
		return err_set(e, ERR_PROTO,
			       "message failed: blame: ranks is not a list of at most "
			       "%d ranks",
			       RANKS_MOST);
	json_array_foreach(list, i, item)
	{
		json_int_t rank = json_integer_value(item);
		if (!json_is_integer(item) || rank < 0 || rank >= s->world)
			return err_set(e, ERR_PROTO,
				       "message failed: blame: entry %zu of ranks is not a rank",
				       i);
		out->ranks[out->n++] = (int)rank;
	}
	return 0;
}

static void record(struct supervisor *s, int rank, const struct msg_blame *m,
		   const struct lost_rank *loss)
{
	rundir_event_numbers_traced(
		s->o.run, s->generation,
		&(struct rundir_numbers_traced){ .rank = rank,
						 .node = supervise_node(s, rank),
						 .step = m->step,
						 .kind = m->kind,
						 .tensor = m->tensor,
						 .suspect = m->suspect,
						 .text = loss->text });
}

/* If one rank is blamed, its fault also blames the node (recovery.c). */
static void suspect_nodes(struct supervisor *s, const struct blamed *b, const char *text)
{
	for (int i = 0; i < b->n; i++) {
		int node = supervise_pool_find(&s->recovery.pool, supervise_node(s, b->ranks[i]));
		bool known = node < 0;
		for (int j = 0; j < i; j++)
			known |= !strcmp(supervise_node(s, b->ranks[i]),
					 supervise_node(s, b->ranks[j]));
		if (!known)
			supervise_suspect_note(s, node, SUSPECT_NUMBERS, text, "");
	}
}

int supervise_traced_numbers_note(struct supervisor *s, const json_t *blame, struct lost_rank *loss,
				  struct err *e)
{
	struct msg_blame m;
	struct blamed b;
	if (loss->code != ERR_NUMERIC && loss->code != ERR_REPLICAS)
		return err_set(e, ERR_PROTO, "message failed: blame with the code %s",
			       err_word(loss->code));
	if (msg_blame_read(blame, &m, e) || read_ranks(s, m.ranks, &b, e))
		return -1;
	if (!b.n)
		return 0;
	bool again = s->numbers_traced_in == s->generation;
	s->numbers_traced_in = s->generation;
	loss->rank = b.n == 1 ? b.ranks[0] : -1;
	loss->wrong_results = m.suspect;
	for (int i = 0; i < b.n && !again; i++)
		record(s, b.ranks[i], &m, loss);
	if (m.suspect && b.n > 1 && !again)
		suspect_nodes(s, &b, loss->text);
	return 0;
}
