#include "agent/engine/data/blend.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BLEND_MAX = 1024 };

/* A child >= 0 is a node; a child < 0 is the source ~child. */
struct blend_node {
	uint64_t weight[2]; /* of the heavier child, of the lighter child */
	int child[2];
};

/* Returns whether the word that begins here is a number. Sets its value, and where the next word
 * begins. */
static bool number(const char *word, double *value, const char **rest)
{
	char *end;
	if (!isdigit((unsigned char)*word) && !strchr("+-.", *word))
		return false;
	if (word[0] && tolower((unsigned char)word[1]) == 'x')
		return false;
	*value = strtod(word, &end);
	if (end == word || (*end && *end != ' '))
		return false;
	while (*end == ' ')
		end++;
	*rest = end;
	return true;
}

/* Returns the next word that begins a weight; NULL: there is none. */
static const char *next_weight(const char *at)
{
	double value;
	const char *rest;
	while ((at = strchr(at, ' '))) {
		while (*at == ' ')
			at++;
		if (number(at, &value, &rest))
			return at;
	}
	return NULL;
}

static int add_source(struct blend *b, double weight, const char *path, size_t len, struct err *e)
{
	while (len && path[len - 1] == ' ')
		len--;
	if (!(weight > 0) || !isfinite(weight))
		return err_set(e, ERR_USAGE,
			       "data.path: the weight %g of %.*s is not above 0; give it one, or "
			       "leave the source out",
			       weight, (int)len, path);
	if (b->n == BLEND_MAX)
		return err_set(e, ERR_USAGE,
			       "data.path: more than %d sources; pack some of them together",
			       BLEND_MAX);
	for (int i = 0; i < b->n; i++)
		if (strlen(b->sources[i].path) == len && !memcmp(b->sources[i].path, path, len))
			return err_set(
				e, ERR_USAGE,
				"data.path: %.*s occurs twice: its samples would occur twice "
				"an epoch; name it "
				"once, with the sum of the weights",
				(int)len, path);
	struct blend_source *list = realloc(b->sources, (size_t)(b->n + 1) * sizeof *list);
	if (list)
		b->sources = list;
	char **paths = realloc(b->paths, (size_t)(b->n + 1) * sizeof *paths);
	if (paths)
		b->paths = paths;
	char *copy = list && paths ? strndup(path, len) : NULL;
	if (!copy)
		return err_set(e, ERR_NOMEM, "data.path: no memory for %d sources", b->n + 1);
	paths[b->n] = copy;
	b->sources[b->n++] = (struct blend_source){ .path = copy, .weight = weight };
	return 0;
}

static int read_words(struct blend *b, const char *words, struct err *e)
{
	double weight;
	const char *path;
	if (!number(words, &weight, &path) || !*path)
		return add_source(b, 1, words, strlen(words), e);
	for (const char *at = words; at;) {
		number(at, &weight, &path);
		const char *next = next_weight(path);
		if (!*path || number(path, &(double){ 0 }, &(const char *){ NULL }))
			return err_set(e, ERR_USAGE,
				       "data.path: the weight %g is not followed by a path; write "
				       "WEIGHT PATH WEIGHT PATH …",
				       weight);
		if (add_source(b, weight, path, next ? (size_t)(next - path) : strlen(path), e))
			return -1;
		at = next;
	}
	return 0;
}

/* Scales the weights to integers, the largest to 2^52. The computation that follows is then exact,
 * and the same on every machine. */
static uint64_t whole_weight(const struct blend *b, int i)
{
	double most = 0;
	for (int k = 0; k < b->n; k++)
		most = fmax(most, b->sources[k].weight);
	uint64_t w = (uint64_t)llround(b->sources[i].weight / most * 0x1p52);
	return w ? w : 1;
}

struct tree { /* the tree under construction: its roots so far */
	uint64_t weight[BLEND_MAX];
	int child[BLEND_MAX];
	int n;
};

/* Takes the lightest root; of equal ones, the one that was added first. */
static void take_lightest(struct tree *t, uint64_t *weight, int *child)
{
	int at = 0;
	for (int i = 1; i < t->n; i++)
		if (t->weight[i] < t->weight[at])
			at = i;
	*weight = t->weight[at];
	*child = t->child[at];
	t->n--;
	memmove(t->weight + at, t->weight + at + 1, (size_t)(t->n - at) * sizeof *t->weight);
	memmove(t->child + at, t->child + at + 1, (size_t)(t->n - at) * sizeof *t->child);
}

/* `parents` holds first those of nodes [0, n - 1), then those of the sources. */
static int *parent_of(const struct blend *b, int child)
{
	return &b->parents[child >= 0 ? child : b->n - 1 + ~child];
}

static int grow_tree(struct blend *b, struct err *e)
{
	struct tree *t = malloc(sizeof *t);
	b->nodes = calloc((size_t)b->n, sizeof *b->nodes);
	b->parents = calloc(2 * (size_t)b->n, sizeof *b->parents);
	if (!t || !b->nodes || !b->parents) {
		free(t);
		return err_set(e, ERR_NOMEM, "data.path: no memory for %d sources", b->n);
	}
	double sum = 0;
	for (t->n = 0; t->n < b->n; t->n++) {
		t->weight[t->n] = whole_weight(b, t->n);
		t->child[t->n] = ~t->n;
		sum += (double)t->weight[t->n];
	}
	for (int i = 0; i < b->n; i++)
		b->sources[i].share = (double)t->weight[i] / sum;
	for (int at = 0; at < b->n - 1; at++) {
		struct blend_node *node = &b->nodes[at];
		take_lightest(t, &node->weight[1], &node->child[1]);
		take_lightest(t, &node->weight[0], &node->child[0]);
		*parent_of(b, node->child[0]) = *parent_of(b, node->child[1]) = at;
		t->weight[t->n] = node->weight[0] + node->weight[1];
		t->child[t->n++] = at;
	}
	free(t);
	return 0;
}

static int finish_blend(struct blend *b, int rc, struct blend *out, struct err *e)
{
	if (rc || grow_tree(b, e)) {
		data_blend_fini(b);
		return -1;
	}
	*out = *b;
	return 0;
}

int data_blend_open(const char *words, struct blend *out, struct err *e)
{
	struct blend b = { 0 };
	while (*words == ' ')
		words++;
	return finish_blend(&b, read_words(&b, words, e), out, e);
}

int data_blend_of(const struct blend_source *list, int n, struct blend *out, struct err *e)
{
	struct blend b = { 0 };
	int rc = n > 0 ? 0 : err_set(e, ERR_USAGE, "data.path: no sources");
	for (int i = 0; i < n && !rc; i++)
		rc = add_source(&b, list[i].weight, list[i].path, strlen(list[i].path), e);
	return finish_blend(&b, rc, out, e);
}

void data_blend_fini(struct blend *b)
{
	for (int i = 0; i < b->n; i++)
		free(b->paths[i]);
	free(b->paths);
	free(b->sources);
	free(b->nodes);
	free(b->parents);
	*b = (struct blend){ 0 };
}

bool data_blend_alike(const char *words, const char *others)
{
	struct blend a = { 0 }, b = { 0 };
	bool same = !data_blend_open(words, &a, NULL) && !data_blend_open(others, &b, NULL) &&
		    a.n == b.n;
	for (int i = 0; same && i < a.n; i++)
		same = whole_weight(&a, i) == whole_weight(&b, i);
	data_blend_fini(&a);
	data_blend_fini(&b);
	return same;
}

/* Returns how many of the first k samples of a node go to its heavier child: round(k a / (a + b)).
 */
static int64_t heavier(const struct blend_node *node, int64_t k)
{
	unsigned __int128 sum = (unsigned __int128)node->weight[0] + node->weight[1];
	return (int64_t)(((unsigned __int128)k * node->weight[0] + sum / 2) / sum);
}

void data_blend_place(const struct blend *b, int64_t k, int *source, int64_t *index)
{
	int at = b->n > 1 ? b->n - 2 : ~0; /* the root is the last node */
	while (at >= 0) {
		const struct blend_node *node = &b->nodes[at];
		int64_t before = heavier(node, k);
		bool light = heavier(node, k + 1) == before;
		k = light ? k - before : before;
		at = node->child[light];
	}
	*source = ~at;
	*index = k;
}

/* Returns how many of the first k samples of the run reach a node or source. */
static int64_t reach(const struct blend *b, int child, int64_t k)
{
	if (child == b->n - 2 || b->n == 1)
		return k;
	const struct blend_node *parent = &b->nodes[*parent_of(b, child)];
	int64_t all = reach(b, *parent_of(b, child), k), first = heavier(parent, all);
	return parent->child[0] == child ? first : all - first;
}

int64_t data_blend_count(const struct blend *b, int64_t k, int source)
{
	return reach(b, ~source, k);
}
