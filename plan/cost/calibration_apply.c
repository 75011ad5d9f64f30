/* calibration_apply: gives a cluster the measured figures of its machines. */
#include "plan/cost/calibration_inner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- This host, and nodes like it --- */

/* Discovered nodes are this host, or count as equal to it. */
static bool is_like_here(const struct node_kind *k)
{
	return !strcmp(k->device, "cpu");
}

static int use_kind(const struct calibration *c, const struct calibration_link *link,
		    enum measured_transport transport, struct node_kind *k, struct err *e)
{
	if (link->known) {
		k->link_latency = fmax(link->alpha, 1e-12);
		k->link_bandwidth = 1 / fmax(link->beta, 1e-15);
	}
	if (c->flops > 0)
		k->device_flops = c->flops / k->devices;
	if (!c->measured.n_machines && !c->measured.n_exchanges)
		return 0;
	struct measured *copy = malloc(sizeof *copy);
	if (!copy)
		return err_set(e, ERR_NOMEM, "no memory for a calibration; close other programs");
	*copy = c->measured;
	copy->transport = transport;
	free(k->measured);
	k->measured = copy;
	return 0;
}

/* What a cluster's figures say of them. */
static void say_host(const struct calibration *c, const struct calibration_link *link,
		     struct cluster *cluster)
{
	bool products = c->flops > 0 || c->measured.n_machines;
	char ranks[32] = "";
	if (!link->known && !products && !c->measured.n_exchanges)
		return;
	if (link->known)
		snprintf(ranks, sizeof ranks, " with %d ranks", c->ranks);
	snprintf(cluster->figures, sizeof cluster->figures, "%s%s%s%s as measured on %s, %s",
		 link->known ? "links inside a node" : "", ranks,
		 link->known && products ? " and " : "",
		 c->measured.n_machines ? "every operation"
		 : c->flops > 0         ? "matrix products"
					: "",
		 c->host, c->date);
}

static int use_host(const struct calibration *c, enum measured_transport transport,
		    struct cluster *cluster, struct err *e)
{
	const struct calibration_link *link = &c->links[transport];
	for (int i = 0; i < cluster->n_kinds; i++)
		if (is_like_here(&cluster->kinds[i]) &&
		    use_kind(c, link, transport, &cluster->kinds[i], e))
			return -1;
	say_host(c, link, cluster);
	return 0;
}

/* --- GPUs --- */

/* The exchanges of a chip in the form that exchange.h reads. In every one of them, as many of the
 * host's GPUs were busy as are in the largest group; each has an agent of its own. */
static struct measured *exchanges_of(const struct measured_chip *chip)
{
	struct measured *m = calloc(1, sizeof *m);
	int crowd = 0;
	for (int i = 0; i < chip->n_exchanges; i++)
		crowd = chip->exchanges[i].group > crowd ? chip->exchanges[i].group : crowd;
	for (int i = 0; m && i < chip->n_exchanges; i++) {
		struct measured_exchange x = chip->exchanges[i];
		x.transport = m->transport;
		x.crowd = crowd;
		topo_measured_add_exchange(m, &x);
	}
	return m;
}

static int use_chip(const struct measured_chip *chip, struct node_kind *k, struct err *e)
{
	bool exchanges = chip->n_exchanges && chip->devices == k->devices;
	struct measured_chip *copy = malloc(sizeof *copy);
	struct measured *m = exchanges ? exchanges_of(chip) : NULL;
	if (!copy || (exchanges && !m)) {
		free(copy);
		free(m);
		return err_set(e, ERR_NOMEM, "no memory for a calibration; close other programs");
	}
	*copy = *chip;
	free(k->chip);
	k->chip = copy;
	free(k->measured);
	k->measured = m;
	return 0;
}

/* Adds to the cluster's figures. What does not fit is cut. */
static void say_other_chips(const struct calibration *c, const struct node_kind *k,
			    struct cluster *cluster)
{
	size_t len = strlen(cluster->figures);
	snprintf(cluster->figures + len, sizeof cluster->figures - len,
		 "%spublished figures of %.40s: the calibration has %.60s%s", len ? "; " : "",
		 k->device, c->chips[0].name,
		 c->n_chips > 1 ? " and others, and not this one" : ", which is another chip");
}

static int use_chips(const struct calibration *c, struct cluster *cluster, struct err *e)
{
	for (int i = 0; i < cluster->n_kinds; i++) {
		struct node_kind *k = &cluster->kinds[i];
		int at = 0;
		while (at < c->n_chips && !topo_measured_chip_is_of(&c->chips[at], k))
			at++;
		if (is_like_here(k) || !c->n_chips)
			continue;
		if (at == c->n_chips)
			say_other_chips(c, k, cluster);
		else if (use_chip(&c->chips[at], k, e))
			return -1;
	}
	return 0;
}

/* --- A cluster --- */

static int apply(const char *path, bool named, enum measured_transport transport,
		 struct cluster *cluster, struct err *e)
{
	struct err why = ERR_INIT;
	struct calibration *c = malloc(sizeof *c);
	bool host = false;
	for (int i = 0; i < cluster->n_kinds; i++)
		host |= is_like_here(&cluster->kinds[i]);
	int bad = c ? calibration_load(path, c, &why)
		    : err_set(&why, ERR_NOMEM, "%s: no memory to read it", path),
	    unfit = !bad && host ? calibration_check_host(path, c, &why) : bad, rc = 0;
	if (unfit && named)
		rc = err_set(e, ERR_USAGE, "[launch] calibration: %s", why.text);
	else if (unfit)
		snprintf(cluster->figures, sizeof cluster->figures,
			 "estimates, not measured: %.250s", why.text);
	else if (host)
		rc = use_host(c, transport, cluster, e);
	if (!rc && !bad)
		rc = use_chips(c, cluster, e);
	free(c);
	return rc;
}

int calibration_apply(const char *word, const char *transport, struct cluster *cluster,
		      struct err *e)
{
	char path[1024];
	bool found = !strcmp(word, "auto");
	if (!strcmp(word, "none"))
		return 0;
	snprintf(path, sizeof path, "%s", word);
	if (found)
		calibration_default(path, sizeof path);
	if (found && access(path, R_OK))
		return 0;
	return apply(path, !found, strcmp(transport, "tcp") ? MEASURED_SHM : MEASURED_TCP, cluster,
		     e);
}
