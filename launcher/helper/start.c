#include "launcher/helper/start.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MOST = 4096 };

/* A list of `n` integers from `least` to `most`. */
static int read_list(const json_t *list, const char *name, int n, int least, int most, int *out,
		     struct err *e)
{
	if (!json_is_array(list) || json_array_size(list) != (size_t)n)
		return err_set(e, ERR_PROTO, "message helper_start: %s is not a list of %d numbers",
			       name, n);
	for (int i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, (size_t)i);
		json_int_t value = json_integer_value(v);
		if (!json_is_integer(v) || value < least || value > most)
			return err_set(e, ERR_PROTO,
				       "message helper_start: %s[%d] is not a number from %d to %d",
				       name, i, least, most);
		out[i] = (int)value;
	}
	return 0;
}

static int read_bind(const char *word, enum job_bind *out, struct err *e)
{
	static const char *const words[] = {
		[BIND_AUTO] = "auto", [BIND_NONE] = "none", [BIND_CORE] = "core"
	};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!strcmp(word, words[i])) {
			*out = (enum job_bind)i;
			return 0;
		}
	return err_set(e, ERR_PROTO, "message helper_start: bind is \"%.20s\"", word);
}

static int allocate(struct helper_start *s, struct err *e)
{
	size_t n = json_is_array(s->m.node_of) ? json_array_size(s->m.node_of) : 0;
	if (n < 1 || n > HELPER_WORLD_MOST)
		return err_set(e, ERR_PROTO, "message helper_start: node_of is a list of %zu ranks",
			       n);
	s->world = (int)n;
	s->node_of = calloc(n, sizeof *s->node_of);
	s->ranks = calloc(n, sizeof *s->ranks);
	s->threads = calloc(n, sizeof *s->threads);
	return s->node_of && s->ranks && s->threads
		       ? 0
		       : err_set(e, ERR_NOMEM, "no memory for %zu ranks", n);
}

int helper_start_read(const json_t *body, struct helper_start *s, struct err *e)
{
	*s = (struct helper_start){ 0 };
	if (msg_helper_start_read(body, &s->m, e) || read_bind(s->m.bind, &s->bind, e) ||
	    allocate(s, e) ||
	    read_list(s->m.node_of, "node_of", s->world, 0, s->world - 1, s->node_of, e))
		return -1;
	for (int r = 0; r < s->world; r++)
		if (s->node_of[r] == s->m.node)
			s->ranks[s->n++] = r;
	if (!s->n)
		return err_set(e, ERR_PROTO, "message helper_start: node %d has no rank",
			       s->m.node);
	return read_list(s->m.threads, "threads", s->n, 1, THREADS_MOST, s->threads, e);
}

void helper_start_fini(struct helper_start *s)
{
	free(s->node_of);
	free(s->ranks);
	free(s->threads);
	*s = (struct helper_start){ 0 };
}
