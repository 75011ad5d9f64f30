#include "agent/rendezvous.h"

#include "base/agent_env.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct rendezvous {
	struct comm_bootstrap bootstrap;
	struct control *control;
	const struct agent_place *place;
	json_t *mine, *wanted; /* wanted: in the order of the place's list; NULL before the fence */
};

static int rendezvous_put(void *arg, const char *key, const char *value, struct err *e)
{
	struct rendezvous *r = arg;
	if (json_object_set_new(r->mine, key, json_string(value)))
		return err_set(e, ERR_INTERNAL,
			       "endpoints: cannot publish %s: it is not UTF-8, or there is no "
			       "memory",
			       key);
	return 0;
}

static int rendezvous_fence(void *arg, struct err *e)
{
	struct rendezvous *r = arg;
	if (r->wanted)
		return err_set(e, ERR_INTERNAL, "endpoints: a second fence");
	return agent_control_exchange(r->control, r->mine, r->place->wants, r->place->n_wants,
				      &r->wanted, e);
}

/* What a rank has published; NULL: this rank has not asked for it. */
static const json_t *find_wanted(const struct rendezvous *r, int rank)
{
	for (int i = 0; i < r->place->n_wants; i++)
		if (r->place->wants[i] == rank)
			return json_array_get(r->wanted, (size_t)i);
	return NULL;
}

static int rendezvous_get(void *arg, int rank, const char *key, char **value, struct err *e)
{
	struct rendezvous *r = arg;
	const char *text = json_string_value(json_object_get(find_wanted(r, rank), key));
	if (!text)
		return err_set(e, ERR_NOTFOUND, "endpoints: rank %d did not publish %s", rank, key);
	*value = strdup(text);
	return *value ? 0
		      : err_set(e, ERR_NOMEM, "endpoints: no memory for %s of rank %d", key, rank);
}

int agent_rendezvous_open(struct control *c, const struct agent_place *place, int rank, int size,
			  struct rendezvous **out, struct err *e)
{
	struct rendezvous *r = calloc(1, sizeof *r);
	json_t *mine = json_object();
	if (!r || !mine) {
		free(r);
		json_decref(mine);
		return err_set(e, ERR_NOMEM, "endpoints: no memory to exchange them");
	}
	r->control = c;
	r->place = place;
	r->mine = mine;
	r->bootstrap = (struct comm_bootstrap){ .rank = rank,
						.size = size,
						.put = rendezvous_put,
						.fence = rendezvous_fence,
						.get = rendezvous_get,
						.arg = r,
						.place = &place->comm };
	*out = r;
	return 0;
}

void agent_rendezvous_close(struct rendezvous *r)
{
	if (!r)
		return;
	json_decref(r->mine);
	json_decref(r->wanted);
	free(r);
}

const struct comm_bootstrap *agent_rendezvous_bootstrap(const struct rendezvous *r)
{
	return &r->bootstrap;
}

/* Reads a number below `end`; false: there is none. */
static bool read_number(const char **at, long end, long *out)
{
	char *after;
	if (**at < '0' || **at > '9')
		return false;
	*out = strtol(*at, &after, 10);
	*at = after;
	return *out < end;
}

/* The item of the list with this number, and how many there are. */
static bool find_item(const char *list, long world, int64_t number, int64_t *n, long *item)
{
	for (*n = 0;; list++) {
		long first, last;
		if (!read_number(&list, world, &first))
			return false;
		last = first;
		if (*list == '-' && (list++, !read_number(&list, world, &last)))
			return false;
		if (last < first)
			return false;
		if (number >= *n && number - *n <= last - first)
			*item = first + (long)(number - *n);
		*n += last - first + 1;
		if (*list != ',')
			return *list == '/';
	}
}

int agent_rendezvous_parse(const char *text, int64_t number, int *rank, int *size, struct err *e)
{
	const char *slash = strchr(text, '/'), *at = slash ? slash + 1 : "";
	long world, item = -1;
	int64_t n;
	bool read = read_number(&at, INT32_MAX, &world) && !*at &&
		    find_item(text, world, number, &n, &item);
	if (read && n == 1)
		read = find_item(text, world, 0, &n, &item);
	if (!read || item < 0)
		return err_set(e, ERR_USAGE,
			       AGENT_ENV_RANKS ": \"%.64s\" has no rank for process %lld of its "
					       "launch",
			       text, (long long)number);
	*rank = (int)item;
	*size = (int)world;
	return 0;
}
