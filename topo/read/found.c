#include "topo/read/found.h"

#include "base/buf.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void topo_found_text(char *out, size_t size, const char *text)
{
	snprintf(out, size, "%s", text);
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
			*c = '_';
}

void topo_found_file_name(char out[TOPO_NAME], const char *file)
{
	const char *slash = strrchr(file, '/');
	topo_found_text(out, TOPO_NAME, slash ? slash + 1 : file);
	char *dot = strrchr(out, '.');
	if (dot && dot > out)
		*dot = '\0';
}

void topo_found_init(struct found_node *m, const char *file)
{
	*m = (struct found_node){ .file = file };
	topo_found_file_name(m->name, file);
}

void topo_found_fini(struct found_node *m)
{
	free(m->places);
	free(m->gpus);
	free(m->nics);
	free(m->links);
	free(m->near);
	free(m->cores);
	*m = (struct found_node){ 0 };
}

/* Makes room for one more element of `size` bytes in *array. */
static int grow_list(const struct found_node *m, void *array, int n, int *cap, size_t size,
		     int most, const char *what, struct err *e)
{
	void **at = array;
	if (n >= most)
		return err_set(e, ERR_USAGE,
			       "%s: more than %d %s; it does not describe one machine", m->file,
			       most, what);
	if (n < *cap)
		return 0;
	int room = *cap ? *cap * 2 : 16;
	void *more = realloc(*at, (size_t)room * size);
	if (!more)
		return err_set(e, ERR_NOMEM, "%s: no memory for its %s", m->file, what);
	*at = more;
	*cap = room;
	return 0;
}

int topo_found_add_place(struct found_node *m, enum found_place_kind kind, int parent,
			 struct err *e)
{
	if (grow_list(m, &m->places, m->n_places, &m->cap_places, sizeof *m->places, MACHINE_PLACES,
		      "places", e))
		return -1;
	m->places[m->n_places] =
		(struct found_place){ .kind = kind,
				      .parent = parent,
				      .depth = parent < 0 ? 0 : m->places[parent].depth + 1 };
	return m->n_places++;
}

int topo_found_add_gpu(struct found_node *m, const struct found_gpu *g, struct err *e)
{
	if (grow_list(m, &m->gpus, m->n_gpus, &m->cap_gpus, sizeof *m->gpus, MACHINE_DEVICES,
		      "devices", e))
		return -1;
	m->gpus[m->n_gpus] = *g;
	return m->n_gpus++;
}

int topo_found_add_nic(struct found_node *m, const struct found_nic *n, struct err *e)
{
	if (grow_list(m, &m->nics, m->n_nics, &m->cap_nics, sizeof *m->nics, MACHINE_NICS,
		      "network adapters", e))
		return -1;
	m->nics[m->n_nics] = *n;
	return m->n_nics++;
}

int topo_found_add_link(struct found_node *m, const struct found_link *l, struct err *e)
{
	if (grow_list(m, &m->links, m->n_links, &m->cap_links, sizeof *m->links,
		      MACHINE_DEVICES * MACHINE_DEVICES, "links", e))
		return -1;
	m->links[m->n_links] = *l;
	return m->n_links++;
}

void topo_found_add_unknown(struct found_node *m, const char *phrase)
{
	size_t used = strlen(m->unsaid);
	if (!strstr(m->unsaid, phrase) && used + strlen(phrase) + 3 < sizeof m->unsaid)
		snprintf(m->unsaid + used, sizeof m->unsaid - used, "%s%s", used ? "; " : "",
			 phrase);
}

double topo_found_payload(double bandwidth)
{
	return bandwidth * 12 / 15.75;
}

static void add_range(struct buf *b, long first, long last)
{
	if (first >= 0)
		buf_printf(b, first == last ? "%s%ld" : "%s%ld-%ld", b->len ? "," : "", first,
			   last);
}

/* Returns the value of the word that ends at `end`; -1: it is not a word of 32 bits. *before is the
 * end of the text before it; NULL: there is none. */
static int64_t word_before(const char *mask, const char *end, const char **before)
{
	const char *at = end;
	int64_t value = 0;
	while (at > mask && at[-1] != ',')
		at--;
	*before = at > mask ? at - 1 : NULL;
	if (end - at >= 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X'))
		at += 2;
	if (end - at > 8)
		return -1;
	for (; at < end; at++) {
		if (!isxdigit((unsigned char)*at))
			return -1;
		value = value * 16 + (isdigit((unsigned char)*at)
					      ? *at - '0'
					      : tolower((unsigned char)*at) - 'a' + 10);
	}
	return value;
}

struct mask_bits topo_mask_bits(const char *mask)
{
	return (struct mask_bits){ .mask = mask, .end = mask + strlen(mask), .base = -32 };
}

long topo_mask_next(struct mask_bits *b)
{
	while (!b->word) {
		if (!b->end)
			return -1;
		int64_t word = word_before(b->mask, b->end, &b->end);
		if (word < 0) {
			b->broken = true;
			b->end = NULL;
			return -1;
		}
		b->word = (uint32_t)word;
		b->base += 32;
	}
	int bit = __builtin_ctz(b->word);
	b->word &= b->word - 1;
	return b->base + bit;
}

void topo_found_mask(const char *mask, char out[TOPO_CPUS])
{
	struct buf list = BUF_INIT;
	struct mask_bits bits = topo_mask_bits(mask);
	long first = -1, last = -2;
	/* The loop ends once the list does not fit. */
	for (long bit; list.len < TOPO_CPUS && (bit = topo_mask_next(&bits)) >= 0; last = bit) {
		if (bit == last + 1)
			continue;
		add_range(&list, first, last);
		first = bit;
	}
	add_range(&list, first, last);
	out[0] = '\0';
	if (!bits.broken && !buf_failed(&list) && list.len < TOPO_CPUS)
		snprintf(out, TOPO_CPUS, "%s", buf_str(&list));
	buf_fini(&list);
}

void topo_found_bus(const char *text, char out[16])
{
	unsigned domain, bus, device, function;
	int used = 0;
	out[0] = '\0';
	/* nvidia-smi and NVML write 8 digits for the domain. */
	if (strlen(text) > 16 ||
	    sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) != 4 ||
	    text[used])
		return;
	char full[32];
	if (snprintf(full, sizeof full, "%04x:%02x:%02x.%x", domain, bus, device, function) < 16)
		memcpy(out, full, strlen(full) + 1);
}
