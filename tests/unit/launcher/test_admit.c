/* What is known of a job before it is queued: Slurm's partitions and nodes, and its forecast. */
#include "launcher/slurm/admit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char partitions[] =
	"PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES "
	"MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 Nodes=n[1-6] State=UP TotalNodes=6\n"
	"PartitionName=short AllowAccounts=ALL AllowQos=ALL Default=NO MaxNodes=2 MaxTime=01:00:00 "
	"MinNodes=0 MaxCPUsPerNode=6 MaxMemPerNode=32000 State=UP TotalNodes=4\n"
	"PartitionName=lab AllowAccounts=lab,staff AllowQos=ALL DenyQos=low Default=NO "
	"MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=3 State=UP TotalNodes=4\n"
	"PartitionName=closed Default=NO State=DRAIN TotalNodes=4\n"
	"PartitionName=night Default=NO State=DOWN TotalNodes=4\n"
	"PartitionName=odd Default=NO State=UP TotalNodes=4\n"
	"PartitionName=untyped Default=NO State=UP TotalNodes=1\n"
	"PartitionName=unseen Default=NO State=UP TotalNodes=4\n";

static const char nodes[] = "main|3|idle|8|64000|gpu:h100:4(S:0-1),nic:2|h100,ib|n[1-3]\n"
			    "main|1|drained*|8|64000|gpu:h100:4|h100,ib|n4\n"
			    "main|2|mixed|16|128000|gpu:a100:2|a100|n[5-6]\n"
			    "short|4|idle|8|64000|(null)|(null)|n[1-4]\n"
			    "lab|4|idle|8|64000|(null)|(null)|n[1-4]\n"
			    "closed|4|idle|8|64000|(null)|(null)|n[1-4]\n"
			    "odd|4|idle|8|64000|(null)|(null)|n[1-\n"
			    "untyped|1|idle|8|64000|gpu:4|(null)|n9\n"
			    "night|4|idle|8|64000|(null)|(null)|n[1-4]\n";

struct row {
	const char *words[6];
	const char *says; /* of the refusal, or of the warning; NULL: neither */
	bool refused;
};

static int admit(const struct row *row, struct buf *warnings, struct err *e)
{
	struct job job;
	struct script_size size;
	struct site site;
	int n = 0;
	while (n < 6 && row->words[n])
		n++;
	if (job_load(NULL, row->words, n, &job, e) || slurm_script_size(&job, &size, e))
		fail_msg("%s: %s", row->words[0], e->text);
	assert_int_equal(slurm_site_parse(partitions, nodes, &site, NULL), 0);
	int rc = slurm_admit(&job, &size, &site, warnings, e);
	slurm_site_free(&site);
	return rc;
}

static void jobs_that_can_never_start_are_refused_and_others_are_not(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct row rows[] = {
		{ { "slurm.nodes=6" }, "of the 6 that fit in partition main, 5 are up; the job waits", false },
		{ { "slurm.nodes=7" }, "nodes: 7 nodes are requested, but partition main has 6; request at most 6", true },
		{ { "slurm.nodes=5", "slurm.spares=2" }, "nodes + spares: 7 nodes are requested, but partition main has 6", true },
		{ { "slurm.nodes=5-9" }, NULL, false },
		{ { "slurm.partition=gpu" }, "there is no partition gpu; the partitions are main, short, lab, closed", true },
		{ { "slurm.partition=closed" }, "partition closed takes no new jobs (its state is DRAIN)", true },
		{ { "slurm.partition=night" }, "partition night is down, so the job waits", false },
		{ { "slurm.partition=closed,main" }, NULL, false },
		{ { "slurm.partition=main,none" }, "there is no partition none", true },
		{ { "slurm.partition=short", "slurm.nodes=3" }, "partition short allows a job 2; request at most 2", true },
		{ { "slurm.partition=short", "slurm.nodes=3", "slurm.qos=big" }, NULL, false },
		{ { "slurm.partition=short", "slurm.cpus_per_task=6", "slurm.mem=32000" }, NULL, false },
		{ { "slurm.partition=short", "slurm.cpus_per_task=7" }, "partition short allows a job 6 cores per node", true },
		{ { "slurm.partition=short", "slurm.mem=32G" }, "mem = 32G: partition short allows a job 32000 MB per node", true },
		{ { "slurm.partition=short", "slurm.time=60" }, NULL, false },
		{ { "slurm.partition=short", "slurm.time=61" }, "time = 61 is longer than the 60 minutes that partition short allows", true },
		{ { "slurm.partition=short", "slurm.time=UNLIMITED" }, "time = UNLIMITED is longer than the 60 minutes", true },
		{ { "slurm.partition=short", "slurm.time=61", "slurm.qos=long" }, "waits for ever unless qos long permits more", false },
		{ { "slurm.partition=short,main", "slurm.time=1-0" }, NULL, false },
		{ { "slurm.partition=lab", "slurm.nodes=3", "slurm.account=lab" }, NULL, false },
		{ { "slurm.partition=lab", "slurm.nodes=3", "slurm.account=other" }, "account = other may not use partition lab, which allows lab,staff", true },
		{ { "slurm.partition=lab", "slurm.nodes=3", "slurm.account=LAB", "slurm.qos=low" }, "qos = low may not use partition lab, which denies it", true },
		{ { "slurm.partition=lab", "slurm.nodes=2" }, "a job of partition lab needs at least 3", true },
		{ { "slurm.gpus_per_node=4", "slurm.nodes=4" }, "of the 4 that fit in partition main, 3 are up", false },
		{ { "slurm.gpus_per_node=4", "slurm.nodes=3" }, NULL, false },
		{ { "slurm.gpus_per_node=4", "slurm.nodes=5" }, "4 GPUs are requested on each node, and a node has at most 4; 4 of the 5 nodes that are requested fit in partition main; lower gpus_per_node", true },
		{ { "slurm.gpus_per_node=8" }, "8 GPUs are requested on each node, and a node has at most 4; no node of partition main fits", true },
		{ { "slurm.gres=gpu:h100:8" }, "gres: 8 GPUs are requested on each node, and a node has at most 4", true },
		{ { "slurm.gres=gpu:h100:4", "slurm.nodes=3" }, NULL, false },
		{ { "slurm.gres=gpu:H100:4,nic:1", "slurm.nodes=4" }, "of the 4 that fit in partition main, 3 are up", false },
		{ { "slurm.gres=gpu:a100:2", "slurm.nodes=3" }, "[slurm] gres = gpu:a100:2: the nodes have gpu:h100:4(S:0-1),nic:2, gpu:h100:4, gpu:a100:2; 2 of the 3 nodes that are requested fit in partition main; use a type that they have", true },
		{ { "slurm.gres=gpu:h200:2" }, "[slurm] gres = gpu:h200:2: the nodes have ", true },
		{ { "slurm.gres=gpu:2", "slurm.nodes=5" }, NULL, false },
		{ { "slurm.partition=untyped", "slurm.gres=gpu:h200:4" }, NULL, false }, /* the type is unknown */
		{ { "slurm.constraint=h100" }, NULL, false },
		{ { "slurm.constraint=h100&ib", "slurm.nodes=3" }, NULL, false },
		{ { "slurm.constraint=h100&a100" }, "constraint = h100&a100: the nodes have the features h100,ib, h100,ib, a100; no node of partition main fits", true },
		{ { "slurm.constraint=h200|a100", "slurm.nodes=2" }, NULL, false },
		{ { "slurm.constraint=h200|b200" }, "constraint = h200|b200", true },
		{ { "slurm.constraint=[x|y]" }, NULL, false }, /* Slurm judges it */
		{ { "slurm.cpus_per_task=17" }, "1 agent with 17 cores each are requested on each node, and a node has at most 16", true },
		{ { "slurm.cpus_per_task=16", "slurm.nodes=3" }, "2 of the 3 nodes that are requested fit in partition main", true },
		{ { "slurm.mem=200G" }, "mem = 200G: a node has at most 128000 MB", true },
		{ { "slurm.mem=125G", "slurm.nodes=2" }, NULL, false },
		{ { "slurm.mem=0" }, NULL, false },
		{ { "slurm.exclude=n[1-4]", "slurm.nodes=2" }, NULL, false },
		{ { "slurm.exclude=n[1-5]", "slurm.nodes=2" }, "exclude leaves 1 of the nodes of partition main, and 2 are requested", true },
		{ { "slurm.exclude=n[1-" }, "[slurm] exclude: ", true },
		{ { "slurm.exclude=n[1-2]", "slurm.gpus_per_node=4", "slurm.nodes=3" }, "2 of the 3 nodes that are requested fit", true },
		{ { "slurm.nodelist=n[5-6]", "slurm.nodes=2" }, NULL, false },
		{ { "slurm.nodelist=n[6-7]", "slurm.nodes=2" }, "partition main has no node n7", true },
		{ { "slurm.nodelist=n[1-3]", "slurm.nodes=2" }, "nodelist names 3 nodes, and at most 2 are requested", true },
		{ { "slurm.partition=unseen", "slurm.nodelist=n1" }, NULL, false },
		{ { "slurm.partition=odd", "slurm.nodes=4", "slurm.nodelist=x1", "slurm.exclude=n1" }, NULL, false }, /* names are unknown */
		{ { "slurm.partition=odd", "slurm.cpus_per_task=9" }, "a node has at most 8", true },
		{ { "slurm.partition=unseen", "slurm.gpus_per_node=9" }, NULL, false }, /* sinfo lists none of its nodes */
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf warnings = BUF_INIT;
		struct err e = ERR_INIT;
		bool refused = admit(&rows[i], &warnings, &e);
		const char *text = refused ? e.text : buf_str(&warnings);
		if (refused != rows[i].refused || (rows[i].says && !strstr(text, rows[i].says)) ||
		    (!rows[i].says && *text))
			fail_msg("row %zu, %s: %s \"%s\"", i, rows[i].words[0],
				 refused ? "refused:" : "admitted:", text);
		buf_fini(&warnings);
	}
}

static void a_cluster_without_a_default_partition_needs_the_key(void **state)
{
	(void)state;
	struct site site;
	struct job job;
	struct script_size size = { .min_nodes = 1, .max_nodes = 1, .agents = 1, .cpus = 1 };
	struct buf warnings = BUF_INIT;
	struct err e = ERR_INIT;
	assert_int_equal(slurm_site_parse(strchr(partitions, '\n') + 1, "", &site, NULL), 0);
	assert_int_equal(site.n_partitions, 7);
	assert_int_equal(job_load(NULL, NULL, 0, &job, NULL), 0);
	assert_int_equal(slurm_admit(&job, &size, &site, &warnings, &e), -1);
	assert_non_null(strstr(e.text, "no default partition; use one of short, lab"));
	slurm_site_free(&site);
	buf_fini(&warnings);
}

static const char associations[] = "lab||normal,high\nstaff|short|normal\n";

/* Admits a job of these words where accounting is like this. */
static int admit_associated(const char *enforce, const char *a, const char *b, struct err *e)
{
	const char *const words[] = { a, b };
	char config[200];
	struct job job;
	struct script_size size;
	struct site site;
	struct buf warnings = BUF_INIT;
	snprintf(config, sizeof config,
		 "AccountingStorageBackupHost = (null)\nAccountingStorageEnforce = %s\nX = qos\n",
		 enforce);
	assert_int_equal(job_load(NULL, words, b ? 2 : 1, &job, NULL), 0);
	assert_int_equal(slurm_script_size(&job, &size, NULL), 0);
	assert_int_equal(slurm_site_parse(partitions, nodes, &site, NULL), 0);
	assert_int_equal(slurm_site_parse_associations(config, associations, &site, NULL), 0);
	int rc = slurm_admit(&job, &size, &site, &warnings, e);
	slurm_site_free(&site);
	buf_fini(&warnings);
	return rc;
}

static void jobs_without_an_association_are_refused_where_one_is_needed(void **state)
{
	(void)state;
	static const struct {
		const char *enforce, *a, *b, *says; /* NULL: it is admitted */
	} rows[] = {
		{ "associations,limits,qos", "slurm.account=lab", "slurm.qos=high", NULL },
		{ "associations", "slurm.account=LAB", NULL, NULL },
		{ "none", "slurm.account=other", NULL, NULL },
		{ "associations", "slurm.account=other", NULL,
		  "[slurm] account = other: the cluster's accounting does not permit it to you; "
		  "your "
		  "accounts are lab, staff; use another account" },
		{ "associations", "slurm.account=staff", NULL, "[slurm] partition = main: " },
		{ "associations", "slurm.account=staff", "slurm.partition=short", NULL },
		{ "limits,qos", "slurm.account=lab", "slurm.qos=huge",
		  "[slurm] qos = huge: the cluster's accounting does not permit it to you; you may "
		  "use qos normal,high; use another qos" },
		{ "associations", "slurm.account=lab", "slurm.qos=huge", NULL },
		{ "qos", "slurm.qos=high", NULL, NULL },
		{ "qos", "slurm.qos=huge", NULL, "[slurm] qos = huge" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = ERR_INIT;
		int rc = admit_associated(rows[i].enforce, rows[i].a, rows[i].b, &e);
		if ((rc != 0) != (rows[i].says != NULL) || (rc && !strstr(e.text, rows[i].says)))
			fail_msg("row %zu: %d: %s", i, rc, e.text);
	}
}

static void texts_that_say_nothing_refuse_nothing(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"", "\n\n", "PartitionName=\n", "garbage", "|||||||\n", "main|x|idle|0|0|||n[1-\n",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct site site;
		struct job job;
		struct script_size size = {
			.min_nodes = 99, .max_nodes = 99, .agents = 9, .cpus = 9
		};
		struct buf warnings = BUF_INIT;
		assert_int_equal(slurm_site_parse(texts[i], texts[i], &site, NULL), 0);
		assert_int_equal(site.n_partitions + site.n_nodes, 0);
		assert_int_equal(job_load(NULL, NULL, 0, &job, NULL), 0);
		assert_int_equal(slurm_admit(&job, &size, &site, &warnings, NULL), 0);
		slurm_site_free(&site);
		buf_fini(&warnings);
	}
}

static void the_expected_start_is_said_in_words(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} rows[] = {
		{ "sbatch: Job 7 to start at 2026-11-22T18:00:10 using 4 processors on nodes n1 in "
		  "partition main\n",
		  "Slurm expects to start the job now\n" },
		{ "sbatch: Job 7 to start at 2026-11-22T17:00:00 using", "now\n" },
		{ "sbatch: Job 7 to start at 2026-11-22T18:05:00 using", "in about 5 minutes "
									 "(2026-11-22 18:05)\n" },
		{ "x\nsbatch: Job 7 to start at 2026-11-22T21:10:00 using",
		  "in about 3 hours (2026-11-22 21:10)\n" },
		{ "Job 7 to start at 2026-11-25T18:00:00 using", "in about 3 days" },
		{ "Job 7 to start at 2537-04-11T06:40:50 using", "cannot say when" },
		{ "allocation failure: Requested node configuration is not available\n",
		  "cannot start the job on the nodes as they are now (allocation failure: "
		  "Requested "
		  "node configuration is not available)" },
		{ "Job 7 to start at soon", "cannot start" },
		{ "", "no reason is known" },
	};
	setenv("TZ", "UTC", 1);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf out = BUF_INIT;
		slurm_admit_wait(rows[i].text, 1795370400 /* 2026-11-22T18:00:00Z */, &out);
		if (!strstr(buf_str(&out), rows[i].says))
			fail_msg("\"%s\" gives \"%s\"", rows[i].text, buf_str(&out));
		buf_fini(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_that_can_never_start_are_refused_and_others_are_not),
		cmocka_unit_test(a_cluster_without_a_default_partition_needs_the_key),
		cmocka_unit_test(jobs_without_an_association_are_refused_where_one_is_needed),
		cmocka_unit_test(texts_that_say_nothing_refuse_nothing),
		cmocka_unit_test(the_expected_start_is_said_in_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
