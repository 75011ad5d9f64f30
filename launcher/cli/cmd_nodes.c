#include "base/clock.h"
#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/status.h"
#include "launcher/suspects/suspects.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
	"muster nodes — list nodes that may be sick, with what runs have seen of them\n"
	"\n"
	"SYNOPSIS\n"
	"  muster nodes [--cluster NAME] [--dir FOLDER] [--json]\n"
	"  muster nodes show NODE [--cluster NAME] [--dir FOLDER] [--json]\n"
	"  muster nodes clear NODE… [--cluster NAME] [--dir FOLDER]\n"
	"\n"
	"DESCRIPTION\n"
	"  Each run notes what speaks against a node: a failed check, a lost device, hardware\n"
	"  errors, wrong numbers, a hang, a slow rank. The list is kept across runs, by default\n"
	"  in ~/.cache/muster/nodes. A site can name a folder that all users share (mode 1777)\n"
	"  with MUSTER_NODES_DIR, or a job with health.nodes_dir.\n"
	"\n"
	"  SURE says how sure it is that the node itself is to blame. Each kind of evidence has\n"
	"  a weight, which halves every 7 days; lines of one kind from one run count once. From\n"
	"  50 % on the node is a suspect: muster run keeps it as a spare if it can, muster submit\n"
	"  names it, or excludes it with health.suspects = exclude.\n"
	"\n"
	"  show prints the evidence against one node, the newest last. clear voids your lines\n"
	"  about nodes that were repaired; those of root void everybody's.\n"
	"\n"
	"OPTIONS\n"
	"  --cluster NAME  the nodes' cluster; \"local\" is runs without Slurm. Otherwise it is\n"
	"                  SLURM_CLUSTER_NAME; if that is not set, all nodes of Slurm\n"
	"  --dir FOLDER    the folder of the list\n"
	"  --json          print JSON; times in seconds since 1970\n"
	"\n"
	"EXAMPLES\n"
	"  muster nodes\n"
	"  muster nodes show n3\n"
	"  muster nodes clear n3 n7\n"
	"\n"
	"EXIT STATUS\n"
	"  0  done\n"
	"  1  the output cannot be printed\n"
	"  2  usage\n"
	"  3  the list cannot be read or written\n";

enum { NAMES_MAX = 256 };

struct arguments {
	bool json;
	const char *cluster, *dir;
	const char *names[NAMES_MAX];
	int n_names;
};

struct listing {
	const struct arguments *a;
	struct suspects_place place;
	const char *cluster;
	struct suspects list;
	struct suspect_node *nodes;
	int n;
};

static int finish(int failed)
{
	return command_output_end(failed ? STATUS_FAILED : STATUS_DONE);
}

static int print_json(json_t *j)
{
	return finish(command_print_json(j));
}

static const char *when(double time, char out[32])
{
	struct tm tm;
	time_t t = (time_t)time;
	strcpy(out, "-");
	if (time > 0 && time < 1e11 && localtime_r(&t, &tm))
		strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm);
	return out;
}

/* Text of another user, without anything that controls a terminal. */
static const char *plain(const char *text, char *out, size_t size)
{
	snprintf(out, size, "%s", text);
	human_plain(out);
	return out;
}

/* --- The list ----------------------------------------------------------------------- */

static json_t *node_json(const struct suspect_node *n)
{
	const struct suspect_line *l = &n->latest->line;
	return json_pack("{s:s, s:s, s:f, s:b, s:i, s:f, s:s, s:s, s:s}", "node", n->name,
			 "cluster", n->cluster, "sure", n->sure, "suspect",
			 n->sure >= SUSPECTS_SURE, "lines", n->lines, "time", l->time, "kind",
			 l->kind, "evidence", l->evidence, "did", l->did);
}

static int list_json(const struct listing *l)
{
	json_t *all = json_array();
	for (int i = 0; i < l->n; i++)
		json_array_append_new(all, node_json(&l->nodes[i]));
	return print_json(all);
}

/* People paste the advice into a shell. In a shared folder another user chooses the names, so only
 * those that mean nothing to a shell are printed. */
static bool is_pasteable(const struct suspect_node *n)
{
	static const char harmless[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
	return n->sure >= SUSPECTS_SURE && strspn(n->name, harmless) == strlen(n->name);
}

/* No character of the evidence has a meaning for a shell. */
static void print_drain(const struct suspect_node *n)
{
	char reason[120];
	plain(n->latest->line.evidence, reason, sizeof reason);
	for (char *c = reason; *c; c++)
		if (*c == '\'' || *c == '\\')
			*c = ' ';
	printf("  scontrol update NodeName=%s State=DRAIN Reason='muster: %s'\n", n->name, reason);
}

static void print_advice(const struct listing *l)
{
	int n = 0;
	for (int i = 0; i < l->n; i++)
		n += is_pasteable(&l->nodes[i]);
	if (!n || !strcmp(l->cluster, SUSPECTS_LOCAL))
		return;
	printf("\nto keep a job away from the suspects:\n  sbatch --exclude=");
	const char *between = "";
	for (int i = 0; i < l->n; i++)
		if (is_pasteable(&l->nodes[i])) {
			printf("%s%s", between, l->nodes[i].name);
			between = ",";
		}
	printf("  (in a job file: slurm.exclude)\n\nfor an administrator, after a look at the "
	       "evidence (muster nodes show NODE):\n");
	for (int i = 0; i < l->n; i++)
		if (is_pasteable(&l->nodes[i]))
			print_drain(&l->nodes[i]);
}

static int list(struct listing *l)
{
	char time[32], evidence[400], name[SUSPECTS_NODE];
	if (l->a->json)
		return list_json(l);
	if (!l->n) {
		printf("nothing speaks against any node (%s)\n", l->place.dir);
		return finish(0);
	}
	printf("%-16s %5s %6s  %-19s  %-8s %s\n", "node", "sure", "lines", "last", "kind",
	       "evidence");
	for (int i = 0; i < l->n; i++) {
		const struct suspect_node *n = &l->nodes[i];
		printf("%-16s %3.0f %% %6d  %-19s  %-8s %s\n", plain(n->name, name, sizeof name),
		       100 * n->sure, n->lines, when(n->latest->line.time, time),
		       suspects_kind_word(n->latest->kind),
		       plain(n->latest->line.evidence, evidence, sizeof evidence));
	}
	print_advice(l);
	return finish(0);
}

/* --- One node ----------------------------------------------------------------------- */

static const struct suspect_node *find_node(const struct listing *l, const char *name)
{
	for (int i = 0; i < l->n; i++)
		if (!strcmp(l->nodes[i].name, name))
			return &l->nodes[i];
	return NULL;
}

static json_t *entry_json(const struct suspects_entry *x)
{
	const struct suspect_line *l = &x->line;
	return json_pack("{s:f, s:s, s:s, s:s, s:s, s:s*, s:i, s:b}", "time", l->time, "cluster",
			 l->cluster, "kind", l->kind, "evidence", l->evidence, "did", l->did, "job",
			 l->has_job ? l->job : NULL, "user", (int)x->user, "counts", x->counts);
}

static void print_entry(const struct suspects_entry *x)
{
	char time[32], text[500];
	printf("%s  %-8s %s", when(x->line.time, time), suspects_kind_word(x->kind),
	       plain(x->line.evidence, text, sizeof text));
	if (*x->line.did)
		printf("; %s", plain(x->line.did, text, sizeof text));
	if (x->line.has_job)
		printf(" (job %s)", plain(x->line.job, text, 40));
	printf("%s\n", x->counts || x->kind == SUSPECT_CLEARED ? "" : " [does not count]");
}

static int show(struct listing *l)
{
	const char *name = l->a->names[0];
	const struct suspect_node *n = find_node(l, name);
	json_t *all = json_array();
	for (int i = 0; i < l->list.n; i++) {
		const struct suspects_entry *x = &l->list.entries[i];
		if (strcmp(x->line.node, name))
			continue;
		if (l->a->json)
			json_array_append_new(all, entry_json(x));
		else
			print_entry(x);
	}
	if (l->a->json)
		return print_json(all);
	json_decref(all);
	printf("%s: %.0f %% sure, %s\n", name, n ? 100 * n->sure : 0.0,
	       !n                         ? "nothing speaks against it"
	       : n->sure >= SUSPECTS_SURE ? "a suspect"
					  : "not a suspect");
	return finish(0);
}

/* In all clusters of the listing that have a node of this name. Returns their number, or -1. */
static int clear_node(const struct listing *l, const char *name, struct err *e)
{
	int cleared = 0;
	for (int i = 0; i < l->n; i++) {
		const struct suspect_line line = { .time = clock_wall_s(),
						   .cluster = l->nodes[i].cluster,
						   .node = name,
						   .kind = suspects_kind_word(SUSPECT_CLEARED),
						   .evidence = "cleared by a person",
						   .did = "",
						   .run = "" };
		if (strcmp(l->nodes[i].name, name))
			continue;
		if (suspects_append(&l->place, &line, e))
			return -1;
		cleared++;
	}
	return cleared ? cleared
		       : err_set(e, ERR_USAGE,
				 "%s: nothing speaks against this node; muster nodes lists those "
				 "with evidence",
				 name);
}

/* Whether the runs of others speak against the node, too. What they have seen only they and root
 * can void. */
static bool others_blame(const struct listing *l, const char *name)
{
	bool blame = false;
	for (int i = 0; i < l->list.n && geteuid(); i++) {
		const struct suspects_entry *x = &l->list.entries[i];
		blame |= x->counts && x->user != geteuid() && !strcmp(x->line.node, name);
	}
	return blame;
}

static int clear(struct listing *l)
{
	struct err e = ERR_INIT;
	for (int i = 0; i < l->a->n_names; i++) {
		if (clear_node(l, l->a->names[i], &e) < 0)
			return command_fail(&e);
		printf("cleared %s%s\n", l->a->names[i],
		       others_blame(l, l->a->names[i])
			       ? ", but only what your runs have seen; root can clear the rest"
			       : "");
	}
	return finish(0);
}

/* --- The command -------------------------------------------------------------------- */

struct verb {
	const char *name;
	int (*run)(struct listing *l);
	int least, most; /* names */
};

static const struct verb verbs[] = {
	{ "show", show, 1, 1 },
	{ "clear", clear, 1, NAMES_MAX },
	{ "", list, 0, 0 },
};

/* Reads the words after the verb, from `at`. */
static int read_arguments(const struct verb *verb, int argc, char **argv, int at,
			  struct arguments *a)
{
	for (int i = at; i < argc; i++) {
		const char **value = !strcmp(argv[i], "--cluster") ? &a->cluster
				     : !strcmp(argv[i], "--dir")   ? &a->dir
								   : NULL;
		if (value && i + 1 == argc)
			return command_misuse("nodes", "%s needs a value", argv[i]);
		if (value)
			*value = argv[++i];
		else if (!strcmp(argv[i], "--json") && strcmp(verb->name, "clear"))
			a->json = true;
		else if (argv[i][0] == '-')
			return command_misuse("nodes",
					      "\"%s\" is not an option of muster nodes%s%s",
					      argv[i], *verb->name ? " " : "", verb->name);
		else if (a->n_names == verb->most)
			return command_misuse("nodes", "\"%s\" is one word too many", argv[i]);
		else
			a->names[a->n_names++] = argv[i];
	}
	if (a->n_names < verb->least)
		return command_misuse("nodes", "%s needs the name of a node", verb->name);
	return 0;
}

int cmd_nodes(int argc, char **argv)
{
	static struct arguments a; /* too large for a small stack */
	struct listing l = { .a = &a };
	struct err e = ERR_INIT;
	const struct verb *verb = verbs;
	if (command_wants_help(argc, argv))
		return command_help(help);
	while (*verb->name && (argc < 2 || strcmp(verb->name, argv[1])))
		verb++;
	int status = read_arguments(verb, argc, argv, *verb->name ? 2 : 1, &a);
	if (status)
		return status;
	l.cluster = a.cluster ? a.cluster : suspects_cluster(true);
	if (suspects_place(a.dir ? a.dir : "", &l.place, &e) ||
	    suspects_read(&l.place, &l.list, &e))
		return command_fail(&e);
	l.n = suspects_rate(&l.list, l.cluster, clock_wall_s(), &l.nodes);
	if (l.n >= 0) {
		status = verb->run(&l);
	} else {
		err_set(&e, ERR_NOMEM, "no memory for the list of nodes");
		status = command_fail(&e);
	}
	free(l.nodes);
	suspects_free(&l.list);
	return status;
}
