#include "boxes.h"
#include "tests/unit/tmpdir.h"
#include "topo/discover/command.h"
#include "topo/discover/internal.h"
#include "topo/internal.h"
#include "topo/discover/scontrol.h"

#include "base/clock.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* --- Commands --- */

static int run(double timeout, size_t most, struct buf *out, struct err *e, const char *program,
	       const char *one, const char *two)
{
	const char *const argv[] = { program, one, two, NULL };
	struct command c = { .argv = (char *const *)argv, .timeout = timeout, .most = most };
	return topo_command_run(&c, out, e);
}

static void a_command_gives_its_output(void **state)
{
	(void)state;
	struct buf out = BUF_INIT;
	assert_int_equal(run(10, 1000, &out, NULL, "printf", "%s", "a b; $(c)"), 0);
	assert_string_equal(buf_str(&out), "a b; $(c)");
	buf_fini(&out);
}

static void a_command_that_fails_reports_the_cause(void **state)
{
	(void)state;
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	assert_int_equal(run(10, 1000, &out, &e, "sh", "-c",
			     "echo out; echo 'no such thing\033[2J' >&2; exit 3"),
			 -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "sh failed: no such thing"));
	assert_null(strchr(e.text, '\033'));
	assert_string_equal(buf_str(&out), "out\n");
	assert_int_equal(run(10, 1000, &out, &e, "/nonexistent/program", NULL, NULL), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	buf_fini(&out);
}

static void a_command_is_limited_in_time_and_output(void **state)
{
	(void)state;
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	double from = clock_s();
	assert_int_equal(run(3, 1000, &out, &e, "sh", "-c", "echo early; exec sleep 60"), -1);
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_string_equal(buf_str(&out), "early\n");
	assert_true(clock_s() - from < 30);
	buf_clear(&out);
	assert_int_equal(run(30, 100000, &out, &e, "yes", NULL, NULL), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "more than 100000 bytes"));
	assert_true(out.len < 1 << 20);
	/* The program ignores SIGTERM as well. */
	assert_int_equal(run(0.2, 1000, &out, &e, "sh", "-c",
			     "trap '' TERM; while :; do sleep 0.1; done"),
			 -1);
	assert_int_equal(e.code, ERR_TIMEOUT);
	buf_fini(&out);
}

/* --- scontrol --- */

static const char node_line[] =
	"NodeName=n1 Arch=x86_64 CoresPerSocket=28  CPUAlloc=0 CPUEfctv=112 CPUTot=112 "
	"CPULoad=0.80 AvailableFeatures=ib,h100 "
	"ActiveFeatures=ib,h100 Gres=gpu:h100:8(S:0-1),nic:2 NodeAddr=10.0.0.1 NodeHostName=n1 "
	"Port=6818 Version=22.05.8 "
	"OS=Linux 6.1.0 #1 SMP Gres=gpu:99 @0  RealMemory=2063000 AllocMem=0 FreeMem=1 Sockets=2 "
	"Boards=1 State=IDLE "
	"ThreadsPerCore=2 TmpDisk=0 Weight=1 BootTime=2026-01-02T03:04:05 "
	"SlurmdStartTime=2026-01-02T03:05:05 Reason=NodeName=x BootTime=no\n";

static void nodes_are_read_from_one_line_each(void **state)
{
	(void)state;
	char text[4096];
	struct slurm_node *v;
	int n;
	snprintf(text, sizeof text,
		 "%sNodeName=n2 Gres=(null) CPUTot=x BootTime=None\nGarbage=1\nNodeName= "
		 "\nNodeName=n3",
		 node_line);
	assert_int_equal(topo_scontrol_nodes(text, &v, &n, NULL), 0);
	assert_int_equal(n, 3);
	assert_string_equal(v[0].name, "n1");
	assert_int_equal(v[0].gpus, 8);
	assert_string_equal(v[0].gpu, "h100");
	assert_int_equal(v[0].sockets * v[0].cores * v[0].threads, 112);
	assert_true(v[0].memory == 2063000.0 * 1024 * 1024);
	assert_string_equal(v[0].boot, "2026-01-02T03:04:05");
	assert_string_equal(v[0].features, "ib,h100");
	assert_string_equal(v[1].name, "n2");
	assert_int_equal(v[1].gpus + v[1].sockets, 0);
	assert_string_equal(v[2].name, "n3");
	assert_string_equal(v[2].boot, "");
	free(v);
}

static void gpus_are_counted_over_their_types(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *text, *type;
		bool named;
		int gpus;
	} rows[] = {
		{ "gpu:2", "", true, 2 },      { "gpu:h100:8(S:0-1)", "h100", true, 8 }, { "nic:2", "", true, 0 },
		{ "(null)", "", true, 0 },     { "gpu:a100:4(S:0),gpu:h100:2(S:1),nic:9", "a100", true, 6 },
		{ "gpu:tesla:2(S:0,1),gpu:1", "tesla", true, 3 }, { "gpus:4", "", true, 0 }, { "gpu:-3", "", true, 0 },
		{ "8", "", false, 8 },         { "h100:4", "h100", false, 4 },           { "a100:1,h100:2", "a100", false, 3 },
		{ "gpu:3", "", false, 3 },     { "", "", false, 0 },                     { ",,,:,", "", true, 0 },
		{ "gpu:h100:99999999", "", true, 0 }, { "gpu:((((", "", true, 0 },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char type[TOPO_NAME] = "";
		if (topo_scontrol_gpus(rows[i].text, rows[i].named, type) != rows[i].gpus ||
		    strcmp(type, rows[i].type))
			fail_msg("\"%s\": %d of \"%s\"", rows[i].text,
				 topo_scontrol_gpus(rows[i].text, rows[i].named, NULL), type);
	}
	assert_int_equal(topo_scontrol_gpus(NULL, true, NULL), 0);
}

static void switches_become_a_tree(void **state)
{
	(void)state;
	struct cluster c;
	boxes(1, 4, &c);
	/* Switches of other nodes are left out. The lowest switch that names a node is its leaf. */
	assert_int_equal(
		topo_scontrol_topology(
			"SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-8] Switches=leaf[0-3]\n"
			"SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
			"SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[3,8]\n"
			"SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[5-7]\n",
			NULL, &c, NULL),
		0);
	assert_int_equal(c.n_switches, 3);
	assert_string_equal(c.switches[c.nodes[0].leaf].name, "leaf0");
	assert_string_equal(c.switches[c.nodes[2].leaf].name, "leaf1");
	assert_string_equal(c.switches[c.nodes[3].leaf].name, "spine");
	assert_int_equal(topo_cluster_hops(&c, 0, 1), 1);
	assert_int_equal(topo_cluster_hops(&c, 0, 2), 2);
	/* Upper switches come first. */
	assert_string_equal(c.switches[0].name, "spine");
	assert_int_equal(c.switches[1].parent, 0);
	assert_int_equal(c.nodes[0].domain, -1);
	topo_cluster_free(&c);
	/* The order is Slurm's own. */
	boxes(1, 2, &c);
	assert_int_equal(
		topo_scontrol_topology(
			"SwitchName=leaf0 Level=0 Nodes=n1\nSwitchName=leaf1 Level=0 Nodes=n2\n"
			"SwitchName=spine Level=1 Nodes=n[1-2] Switches=leaf[0-1]\n",
			NULL, &c, NULL),
		0);
	assert_string_equal(c.switches[c.nodes[0].leaf].name, "leaf0");
	assert_int_equal(topo_cluster_hops(&c, 0, 1), 2);
	topo_cluster_free(&c);
}

static void blocks_are_leaves_and_maybe_domains(void **state)
{
	(void)state;
	static const char text[] =
		"BlockName=b7 BlockIndex=0 Nodes=n[9-10] BlockSize=2\nBlockName=b8 BlockIndex=1 "
		"Nodes=n[1-2] BlockSize=2\n"
		"BlockName=b9 BlockIndex=2 Nodes=n[3-4] BlockSize=2\nAggregatedBlock=b[8-9] "
		"Nodes=n[1-4] BlockSize=4\n";
	static const bool joins[4] = { true, true, true, true };
	struct cluster c;
	boxes(1, 4, &c);
	assert_int_equal(topo_scontrol_topology(text, joins, &c, NULL), 0);
	assert_int_equal(c.n_switches, 2);
	assert_int_equal(c.nodes[1].domain, 0);
	assert_int_equal(c.nodes[3].domain, 1);
	assert_true(topo_cluster_share_nvlink(&c, 0, 1) && !topo_cluster_share_nvlink(&c, 1, 2));
	topo_cluster_free(&c);
	boxes(1, 4, &c);
	assert_int_equal(topo_scontrol_topology(text, NULL, &c, NULL), 0);
	assert_int_equal(c.nodes[1].domain, -1);
	assert_int_equal(topo_cluster_hops(&c, 0, 1), 1);
	topo_cluster_free(&c);
}

static void broken_topologies_change_nothing(void **state)
{
	(void)state;
	static const char *const texts[] = { "", "No topology information available\n",
					     "SwitchName=a Level=0 Nodes=n[1-\n",
					     "BlockName=b BlockIndex=0 Nodes=n[[[\n",
					     "SwitchName=\n" };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct cluster c;
		boxes(1, 2, &c);
		topo_scontrol_topology(texts[i], NULL, &c, NULL);
		assert_null(c.switches);
		assert_int_equal(c.nodes[0].leaf, -1);
		topo_cluster_free(&c);
	}
	/* A cycle of switches is cut. */
	struct cluster c;
	boxes(1, 2, &c);
	assert_int_equal(
		topo_scontrol_topology("SwitchName=a Level=1 Nodes=n[1-2] Switches=b\nSwitchName=b "
				       "Level=1 Nodes=n[1-2] Switches=a\n",
				       NULL, &c, NULL),
		0);
	assert_int_equal(topo_cluster_hops(&c, 0, 1), 1);
	topo_cluster_free(&c);
}

/* --- Reports --- */

static void make_lists(struct hostlist *nodes, int n)
{
	char text[32];
	*nodes = (struct hostlist){ .n = 0 };
	snprintf(text, sizeof text, "n[1-%d]", n);
	assert_int_equal(topo_hostlist_expand(text, nodes, NULL), 0);
}

/* Mixes the lines of both texts at random. */
static void mix(const char *a, const char *b, struct buf *out)
{
	while (*a || *b)
		for (const char **at = &a; at; at = at == &a ? &b : NULL) {
			size_t len = strcspn(*at, "\n");
			len += (*at)[len] == '\n';
			buf_add(out, *at, len);
			*at += len;
		}
}

static void reports_come_back_however_they_are_mixed(void **state)
{
	(void)state;
	struct cluster c;
	struct hostlist nodes;
	struct buf one = BUF_INIT, two = BUF_INIT, both = BUF_INIT;
	struct report reports[3] = { { .there = false } };
	boxes(1, 1, &c);
	make_lists(&nodes, 3);
	setenv("SLURMD_NODENAME", "n1", 1);
	assert_int_equal(topo_report_print(&c, "", &one, NULL), 0);
	c.kinds[0].links[1].lanes = 1;
	setenv("SLURMD_NODENAME", "n3", 1);
	assert_int_equal(topo_report_print(&c, "abcd.7", &two, NULL), 0);
	buf_puts(&both,
		 "srun: a warning\nmuster-topo n2 0 1 rubbish\nmuster-topo stranger 0 1 - {}\n");
	mix(buf_str(&one), buf_str(&two), &both);
	for (const char *at = buf_str(&both); *at; at += strcspn(at, "\n") + 1)
		assert_true(strcspn(at, "\n") < 1000);
	assert_int_equal(topo_report_parse(buf_str(&both), &nodes, reports, NULL), 0);
	assert_true(reports[0].there && !reports[1].there && reports[2].there);
	assert_string_equal(reports[0].fabric, "");
	assert_string_equal(reports[2].fabric, "abcd.7");
	assert_int_equal(reports[0].kind.links[1].lanes, 2);
	assert_int_equal(reports[2].kind.links[1].lanes, 1);
	assert_true(topo_kind_equal(&reports[0].kind, &reports[0].kind) &&
		    !topo_kind_equal(&reports[0].kind, &reports[2].kind));
	for (int i = 0; i < 3; i++)
		topo_kind_free(&reports[i].kind);
	buf_fini(&one);
	buf_fini(&two);
	buf_fini(&both);
	topo_hostlist_free(&nodes);
	topo_cluster_free(&c);
}

static void torn_reports_are_ignored(void **state)
{
	(void)state;
	struct cluster c;
	struct hostlist nodes;
	struct buf text = BUF_INIT;
	boxes(1, 1, &c);
	make_lists(&nodes, 1);
	setenv("SLURMD_NODENAME", "n1", 1);
	assert_int_equal(topo_report_print(&c, "", &text, NULL), 0);
	const char *whole = buf_str(&text);
	/* The text is cut at any byte, and each line is left out once. */
	for (size_t cut = 0; cut + 2 < text.len; cut += 37) {
		struct report r = { .there = false };
		char *part = strndup(whole, cut);
		assert_int_equal(topo_report_parse(part, &nodes, &r, NULL), 0);
		assert_false(r.there);
		free(part);
	}
	for (const char *skip = whole; *skip; skip += strcspn(skip, "\n") + 1) {
		struct report r = { .there = false };
		struct buf rest = BUF_INIT;
		buf_add(&rest, whole, (size_t)(skip - whole));
		buf_puts(&rest, skip + strcspn(skip, "\n") + 1);
		assert_int_equal(topo_report_parse(buf_str(&rest), &nodes, &r, NULL), 0);
		assert_false(r.there);
		buf_fini(&rest);
	}
	buf_fini(&text);
	topo_hostlist_free(&nodes);
	topo_cluster_free(&c);
}

static void equal_nodes_become_one_kind(void **state)
{
	(void)state;
	struct cluster c;
	struct node_kind kinds[4];
	boxes(4, 4, &c);
	for (int i = 0; i < 4; i++) {
		free(c.kinds[i].parts);
		free(c.kinds[i].nics);
		free(c.kinds[i].links);
		box_of_four(&kinds[i]);
	}
	kinds[1].memory *= 0.99;      /* firmware takes a share */
	kinds[1].device_flops *= 1.3; /* the clock at that moment */
	kinds[2].nics[1].bandwidth /= 2;
	assert_non_null(kinds[2].measured = calloc(1, sizeof *kinds[2].measured));
	assert_int_equal(topo_kind_merge(kinds, 4, &c), 2);
	assert_int_equal(c.nodes[0].kind, 0);
	assert_int_equal(c.nodes[1].kind, 0);
	assert_int_equal(c.nodes[2].kind, 1);
	assert_int_equal(c.nodes[3].kind, 0);
	assert_non_null(c.kinds[1].measured);
	/* The kinds of the list own nothing any more. */
	for (int i = 0; i < 4; i++)
		topo_kind_free(&kinds[i]);
	topo_cluster_free(&c);
}

/* --- The cache --- */

/* If the allocation has 4 GPUs of each node, a job with 4 of the 8 GPUs of one of the nodes may not
 * use what another job found there. */
static void a_share_names_the_job_unless_every_node_is_whole(void **state)
{
	static const struct {
		int gpus[2];
		bool same; /* for two jobs */
	} cases[] = {
		{ { 4, 4 }, true }, { { 4, 8 }, false }, { { 8, 4 }, false }, { { 8, 8 }, false }
	};
	(void)state;
	setenv("SLURM_GPUS_ON_NODE", "4", 1);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct slurm_node nodes[2] = { { .gpus = cases[i].gpus[0] },
					       { .gpus = cases[i].gpus[1] } };
		char one[CACHE_SHARE], two[CACHE_SHARE];
		setenv("SLURM_JOB_ID", "1", 1);
		topo_cache_share(nodes, 2, one);
		setenv("SLURM_JOB_ID", "2", 1);
		topo_cache_share(nodes, 2, two);
		assert_int_equal(!strcmp(one, two), cases[i].same);
	}
	unsetenv("SLURM_GPUS_ON_NODE");
	unsetenv("SLURM_JOB_ID");
}

static void a_result_is_valid_until_a_node_boots(void **state)
{
	(void)state;
	char dir[256], boots[2][32] = { "2026-01-02T03:04:05", "2026-01-02T03:04:06" }, path[512],
		       command[1024];
	struct cluster c, back;
	struct hostlist nodes, fewer;
	struct err e = ERR_INIT;
	struct stat st;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	setenv("XDG_CACHE_HOME", dir, 1);
	boxes(1, 2, &c);
	make_lists(&nodes, 2);
	make_lists(&fewer, 1);
	struct cache_key key = { &nodes, boots, "4(x2)" }, part = { &fewer, boots, "4(x2)" },
			 half = { &nodes, boots, "2(x2)" };
	assert_int_equal(topo_cache_read(&key, &back, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_int_equal(topo_cache_write(&key, &c, &e), 0);
	assert_int_equal(topo_cache_read(&key, &back, &e), 0);
	assert_int_equal(topo_cluster_devices(&back), 8);
	assert_true(topo_kind_equal(&back.kinds[0], &c.kinds[0]));
	topo_cluster_free(&back);
	assert_int_equal(topo_cache_read(&part, &back, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_int_equal(topo_cache_read(&half, &back, &e), -1);
	assert_int_equal(e.code, ERR_STALE);
	/* The boot time is recomputed at times and may then differ by a second. */
	boots[1][18]++;
	assert_int_equal(topo_cache_read(&key, &back, &e), 0);
	topo_cluster_free(&back);
	boots[1][15]++;
	assert_int_equal(topo_cache_read(&key, &back, &e), -1);
	assert_int_equal(e.code, ERR_STALE);
	boots[1][15]--;
	boots[1][18]--;
	/* The folder is private, and so is its file. */
	snprintf(command, sizeof command, "%s/muster", dir);
	assert_int_equal(stat(command, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	snprintf(command, sizeof command, "ls %s/muster/topo-*.json", dir);
	FILE *f = popen(command, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%511s", path), 1);
	pclose(f);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* A cache that is damaged at any place is refused, or it gives the same values. */
	struct buf text = BUF_INIT;
	assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
	for (size_t cut = 0; cut < text.len; cut += 101) {
		assert_int_equal(file_replace(path, text.data, cut, NULL), 0);
		assert_int_equal(topo_cache_read(&key, &back, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
	}
	buf_fini(&text);
	snprintf(command, sizeof command, "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
	unsetenv("XDG_CACHE_HOME");
	topo_hostlist_free(&nodes);
	topo_hostlist_free(&fewer);
	topo_cluster_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_command_gives_its_output),
		cmocka_unit_test(a_command_that_fails_reports_the_cause),
		cmocka_unit_test(a_command_is_limited_in_time_and_output),
		cmocka_unit_test(nodes_are_read_from_one_line_each),
		cmocka_unit_test(gpus_are_counted_over_their_types),
		cmocka_unit_test(switches_become_a_tree),
		cmocka_unit_test(blocks_are_leaves_and_maybe_domains),
		cmocka_unit_test(broken_topologies_change_nothing),
		cmocka_unit_test(reports_come_back_however_they_are_mixed),
		cmocka_unit_test(torn_reports_are_ignored),
		cmocka_unit_test(equal_nodes_become_one_kind),
		cmocka_unit_test(a_share_names_the_job_unless_every_node_is_whole),
		cmocka_unit_test(a_result_is_valid_until_a_node_boots),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
