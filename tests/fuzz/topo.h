/* topo — checks what must hold for every machine that a reader accepts, and that JSON keeps it. */
#ifndef MUSTER_TESTS_FUZZ_TOPO_H
#define MUSTER_TESTS_FUZZ_TOPO_H

#include "topo/json.h"
#include "topo/read/read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline void must(bool holds)
{
	if (!holds)
		abort();
}

static inline void check_kind(const struct node_kind *k)
{
	must(k->devices >= 1 && k->numa >= 0 && k->cores >= 0 && k->n_nics >= 0 &&
	     memchr(k->unsaid, '\0', sizeof k->unsaid));
	must(isfinite(k->memory) && isfinite(k->device_memory) && isfinite(k->link_bandwidth) &&
	     isfinite(k->net_bandwidth));
	for (int i = 0; k->parts && i < k->devices; i++) {
		const struct topo_device *d = &k->parts[i];
		must(d->nic >= -1 && d->nic < k->n_nics && d->numa >= -1 &&
		     d->numa < (k->numa > 0 ? k->numa : 1));
		must(d->nic_link >= LINK_UNKNOWN && d->nic_link < LINK_KINDS &&
		     memchr(d->cpus, '\0', sizeof d->cpus) && memchr(d->name, '\0', TOPO_NAME));
	}
	for (long i = 0; k->links && i < (long)k->devices * k->devices; i++) {
		const struct topo_link *l = &k->links[i];
		must((l->kind == LINK_SELF) == (i / k->devices == i % k->devices) &&
		     l->kind >= LINK_UNKNOWN && l->kind < LINK_KINDS);
		must(l->lanes >= 0 && l->bandwidth >= 0 && isfinite(l->bandwidth));
	}
}

static inline void check_cluster(const struct cluster *c)
{
	must(c->n_kinds >= 1 && c->n_nodes >= 1);
	for (int i = 0; i < c->n_kinds; i++)
		check_kind(&c->kinds[i]);
	for (int i = 0; i < c->n_nodes; i++) {
		must(c->nodes[i].kind >= 0 && c->nodes[i].kind < c->n_kinds &&
		     c->nodes[i].leaf >= -1 && c->nodes[i].leaf < c->n_switches);
		must(c->nodes[i].name[0] && memchr(c->nodes[i].name, '\0', TOPO_NAME));
	}
	for (int i = 0; i < c->n_switches; i++)
		must(c->switches[i].parent < i);
	must(topo_cluster_devices(c) > 0);
}

/* Names that are not UTF-8 cannot be written. */
static inline void check_written(const struct cluster *c)
{
	struct buf text = BUF_INIT, again = BUF_INIT;
	struct cluster back;
	if (!topo_json_write(c, &text, NULL)) {
		must(!topo_json_read("it", text.data, text.len, &back, NULL));
		must(!topo_json_write(&back, &again, NULL) && again.len == text.len &&
		     !memcmp(again.data, text.data, text.len));
		topo_cluster_free(&back);
	}
	buf_fini(&text);
	buf_fini(&again);
}

static inline int fuzz_format(const struct topo_format *f, const uint8_t *data, size_t size)
{
	struct cluster c;
	struct err e = ERR_INIT;
	char *text = malloc(size + 1);
	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	const struct topo_text in = {
		.file = "it", .text = text, .len = size, .devices = size % 5
	};
	f->sniff(&in);
	if (!f->read(&in, &c, &e)) {
		check_cluster(&c);
		check_written(&c);
		topo_cluster_free(&c);
	} else {
		must(e.code == ERR_USAGE && !strncmp(e.text, "it:", 3));
	}
	free(text);
	return 0;
}

#endif
