/* What an agent reads of its node and its device, and what it concludes: from trees that look like
 * /proc and /sys, and from a double of NVIDIA's library. */
#include "agent/health/health.h"
#include "agent/health/others.h"
#include "agent/health/text.h"
#include "base/file.h"
#include "tests/unit/nvml_double.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define WINDOW_S 10.0

static char root[256], library[NVML_DOUBLE_PATH];
static double now;
static struct health *h;
static struct health_finding found[HEALTH_FINDINGS];
static int n_found;

static void put(const char *path, const char *text)
{
	char whole[600];
	snprintf(whole, sizeof whole, "%s/%s", root, path);
	char *slash = strrchr(whole, '/');
	*slash = '\0';
	assert_int_equal(file_make_dirs(whole, NULL), 0);
	*slash = '/';
	FILE *f = fopen(whole, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* A stat line of a process: major faults, ticks of CPU time, nice value, last CPU. */
static void put_stat(const char *path, int pid, const char *name, int faults, int ticks,
		     int nice_value, int cpu)
{
	char text[512];
	snprintf(text, sizeof text,
		 "%d (%s) R 1 1 1 0 -1 4194304 100 0 %d 0 %d 0 0 0 20 %d 1 0 100 1000 10 "
		 "18446744073709551615 1 1 1 1 1 0 "
		 "0 0 0 0 0 0 17 %d 0 0 0 0 0\n",
		 pid, name, faults, ticks, nice_value, cpu);
	put(path, text);
}

/* A healthy node: process 77, whose thread 78 trains on CPUs 2 and 3. */
static void put_healthy(void)
{
	put("proc/77/cgroup", "4:memory:/\n1:cpu:/job\n0::/\n");
	put("proc/77/status", "Name:\tmuster-agent\nCpus_allowed_list:\t2-3\n");
	put("proc/77/task/78/status", "nonvoluntary_ctxt_switches:\t10\n");
	put("proc/77/task/78/schedstat", "5000000000 100000000 30\n");
	put_stat("proc/77/stat", 77, "muster-agent", 5, 500, 0, 2);
	put_stat("proc/77/task/78/stat", 78, "muster-agent", 5, 500, 0, 2);
	put("proc/vmstat", "nr_free_pages 1\npswpin 0\npswpout 0\n");
	put("proc/net/snmp", "Ip: Forwarding\nIp: 1\nTcp: OutSegs RetransSegs\nTcp: 1000 10\n");
	put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n");
	put("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n");
	put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
	put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
	put("sys/fs/cgroup/cpu/job/cpu.stat", "nr_periods 9\nnr_throttled 0\nthrottled_time 0\n");
	put("sys/class/net/eth0/device/uevent", "PCI\n");
	put("sys/class/net/eth0/statistics/rx_errors", "3\n");
	put("sys/class/net/eth0/statistics/tx_errors", "0\n");
	put("sys/class/net/veth1/statistics/rx_errors", "99\n");
}

static int setup(void **state)
{
	(void)state;
	if (!tmpdir_make(root, sizeof root))
		return -1;
	now = 1000;
	n_found = 0;
	put_healthy();
	const struct health_options o = { .root = root, .pid = 77, .node = true };
	h = health_open(&o, now);
	if (!h)
		return -1;
	health_set_thread(h, 78);
	health_judge(h, now += WINDOW_S, found); /* the thread was unknown before */
	return 0;
}

static int teardown(void **state)
{
	char command[300];
	(void)state;
	health_close(h);
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

static void end_window(void)
{
	health_sample(h);
	n_found = health_judge(h, now += WINDOW_S, found);
}

/* The finding of this kind in the last window. NULL: there is none. */
static const struct health_finding *finding(const char *kind)
{
	for (int i = 0; i < n_found; i++)
		if (!strcmp(found[i].kind, kind))
			return &found[i];
	return NULL;
}

static void expect(const char *kind, const char *text)
{
	const struct health_finding *f = finding(kind);
	if (!f)
		fail_msg("no finding %s", kind);
	else if (!strstr(f->text, text))
		fail_msg("%s: \"%s\" does not hold \"%s\"", kind, f->text, text);
}

static void a_healthy_node_has_no_findings(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		end_window();
		assert_int_equal(n_found, 0);
	}
}

static void a_limit_of_cores_is_found(void **state)
{
	(void)state;
	put("sys/fs/cgroup/cpu/job/cpu.stat", "nr_throttled 40\nthrottled_time 4800000000\n");
	end_window();
	expect("throttled",
	       "its cgroup /job limits it to 0.5 cores: it was throttled for 48 % of the time");
	assert_false(finding("throttled")->alarm);
	end_window();
	assert_null(finding("throttled"));
}

static void version_2_and_the_groups_above_are_understood(void **state)
{
	(void)state;
	put("proc/77/cgroup", "0::/slurm/job_7/step_0\n");
	put("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
	put("sys/fs/cgroup/slurm/job_7/cpu.max", "200000 100000\n");
	put("sys/fs/cgroup/slurm/job_7/cpu.stat", "usage_usec 5\nthrottled_usec 0\n");
	put("sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "max 100000\n");
	end_window();
	put("sys/fs/cgroup/slurm/job_7/cpu.stat", "usage_usec 5\nthrottled_usec 2500000\n");
	end_window();
	expect("throttled",
	       "its cgroup /slurm/job_7 limits it to 2 cores: it was throttled for 25 %");
}

static void a_wait_for_a_core_is_found(void **state)
{
	(void)state;
	put("proc/77/task/78/schedstat", "5000000000 4700000000 30\n");
	end_window();
	expect("delay", "it waited for a core for 46 % of the time");
	assert_true(health_suspects_others(h, now));
	health_note_others(h, now, "process burner, pid 9, uses 96 % of core 3", found, n_found);
	expect("delay", "46 % of the time; process burner, pid 9, uses 96 % of core 3");
	assert_false(health_suspects_others(h, now + 1));
	assert_true(health_suspects_others(h, now + 100));
}

/* The wait of a throttled thread is explained by the limit. */
static void a_wait_that_is_throttled_counts_once(void **state)
{
	(void)state;
	put("proc/77/task/78/schedstat", "5000000000 6100000000 30\n");
	put("sys/fs/cgroup/cpu/job/cpu.stat", "throttled_time 5000000000\n");
	end_window();
	assert_true(finding("throttled")->share > 0.5);
	assert_true(finding("delay")->share < 0.2);
	/* The kernel may count less time than the thread waits. */
	put("proc/77/task/78/schedstat", "5000000000 15000000000 30\n");
	put("sys/fs/cgroup/cpu/job/cpu.stat",
	    "nr_periods 109\nnr_throttled 90\nthrottled_time 8000000000\n");
	end_window();
	put("proc/77/task/78/schedstat", "5000000000 24000000000 30\n");
	put("sys/fs/cgroup/cpu/job/cpu.stat",
	    "nr_periods 209\nnr_throttled 185\nthrottled_time 11000000000\n");
	end_window();
	assert_true(finding("throttled")->share > finding("delay")->share);
}

static void a_nice_value_is_found(void **state)
{
	(void)state;
	put_stat("proc/77/task/78/stat", 78, "muster-agent", 5, 500, 15, 2);
	end_window();
	put("proc/77/task/78/schedstat", "5000000000 5100000000 30\n");
	end_window();
	expect("niced",
	       "its nice value is 15, so other processes go first: it waited for a core for 50 %");
	assert_true(finding("niced")->share > finding("delay")->share);
}

static void short_memory_is_found(void **state)
{
	(void)state;
	put("proc/77/cgroup", "4:memory:/tight\n1:cpu:/job\n0::/\n");
	put("sys/fs/cgroup/memory/tight/memory.limit_in_bytes", "536870912\n");
	put("sys/fs/cgroup/memory/tight/memory.usage_in_bytes", "536800000\n");
	put_stat("proc/77/stat", 77, "muster-agent", 12005, 500, 0, 2);
	end_window();
	put_stat("proc/77/stat", 77, "muster-agent", 24005, 500, 0, 2);
	put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3401000\n");
	end_window();
	expect("memory-pressure", "processes waited for memory for 34 % of the time; its cgroup "
				  "/tight limits it to 512");
	expect("major-faults", "1200 per second pages");
}

/* Other processes of the node wait for memory, but this one has all its pages. */
static void the_short_memory_of_others_is_not_its_own(void **state)
{
	(void)state;
	end_window();
	put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9001000\n");
	end_window();
	assert_null(finding("memory-pressure"));
}

static void swapping_is_found(void **state)
{
	(void)state;
	put("proc/vmstat", "pswpin 2000\npswpout 3000\n");
	end_window();
	expect("swap", "500 per second");
	assert_true(finding("swap")->node);
}

static void heat_is_found(void **state)
{
	(void)state;
	put("sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "7\n");
	end_window();
	assert_null(finding("thermal"));
	put("sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "57\n");
	end_window();
	expect("thermal", "slowed down 50 times because they were too hot");
}

static void the_clock_of_its_cores_is_read(void **state)
{
	(void)state;
	assert_true(health_clock(h) == 0);
	put("proc/cpuinfo",
	    "processor\t: 0\ncpu MHz\t\t: 2400.0\nprocessor\t: 1\ncpu MHz\t\t: 2600.0\n");
	end_window();
	assert_true(health_clock(h) == 2500);
	put("sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq", "1200000\n");
	put("sys/devices/system/cpu/cpu3/cpufreq/scaling_cur_freq", "1400000\n");
	end_window();
	assert_true(health_clock(h) == 1300);
}

static void errors_of_a_link_give_one_alarm(void **state)
{
	(void)state;
	put("sys/class/net/eth0/statistics/rx_errors", "5\n");
	end_window();
	assert_null(finding("nic-errors")); /* 2 are not many */
	put("sys/class/net/eth0/statistics/rx_errors", "45\n");
	end_window();
	expect("nic-errors", "network interface eth0 had 40 new errors");
	assert_true(finding("nic-errors")->alarm && finding("nic-errors")->node);
	assert_string_equal(finding("nic-errors")->object, "eth0");
	put("sys/class/net/eth0/statistics/rx_errors", "85\n");
	end_window();
	assert_false(finding("nic-errors")->alarm);
}

static void the_link_whose_errors_increase_is_named(void **state)
{
	(void)state;
	put("sys/class/net/eth1/device/uevent", "PCI\n");
	put("sys/class/net/eth1/statistics/rx_errors", "5000\n");
	end_window();
	assert_null(finding("nic-errors")); /* they are not new */
	put("sys/class/net/eth0/statistics/rx_errors", "45\n");
	end_window();
	expect("nic-errors", "network interface eth0 had 42 new errors");
}

static void a_link_of_infiniband_that_fails_is_an_alarm(void **state)
{
	(void)state;
	put("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "1\n");
	put("sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "1\n");
	end_window();
	assert_null(finding("ib-link"));
	put("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "2\n");
	end_window();
	expect("ib-link", "the link of adapter mlx5_0 port 1 failed 1 times");
	assert_true(finding("ib-link")->alarm);
}

static void segments_that_are_sent_again_are_found(void **state)
{
	(void)state;
	put("proc/net/snmp", "Tcp: OutSegs RetransSegs\nTcp: 2000 60\n");
	end_window();
	expect("tcp-resent", "the node sent 5 % of its TCP segments again");
}

/* The process has moved to another cgroup, or a driver was loaded again. */
static void a_counter_that_falls_begins_again(void **state)
{
	(void)state;
	put("sys/fs/cgroup/cpu/job/cpu.stat", "throttled_time 4800000000\n");
	end_window();
	put("sys/fs/cgroup/cpu/job/cpu.stat", "throttled_time 100000000\n");
	end_window();
	assert_null(finding("throttled"));
	put("sys/fs/cgroup/cpu/job/cpu.stat", "throttled_time 5100000000\n");
	end_window();
	expect("throttled", "50 %");
}

/* --- GPU -------------------------------------------------------------------------------------- */

static void watch_gpu(const char *machine)
{
	assert_int_equal(nvml_double_find(library), 0);
	setenv("NVML_DOUBLE", machine, 1);
	health_close(h);
	const struct health_options o = {
		.root = root, .pid = 77, .gpu = "0000:36:00.0", .library = library
	};
	h = health_open(&o, now);
	assert_non_null(h);
	end_window();
}

static void defects_of_its_gpu_are_alarms(void **state)
{
	(void)state;
	watch_gpu("dgx-h100");
	assert_int_equal(n_found, 0);
	setenv("NVML_DOUBLE", "dgx-h100,uncorrected=1,remap-pending=1,xid=79", 1);
	end_window();
	expect("ecc", "uncorrectable memory errors");
	expect("remap-pending", "must be reset");
	expect("xid", "XID 79");
	assert_true(finding("ecc")->alarm && finding("remap-pending")->alarm &&
		    finding("xid")->alarm);
	assert_string_equal(finding("xid")->object, "GPU 0000:36:00.0");
	end_window();
	assert_null(finding("ecc")); /* there is no new one */
	assert_false(finding("remap-pending")->alarm);
}

static void errors_of_the_program_are_not_its_gpus(void **state)
{
	(void)state;
	watch_gpu("dgx-h100");
	setenv("NVML_DOUBLE", "dgx-h100,xid=31", 1);
	end_window();
	assert_null(finding("xid"));
}

static void a_hot_gpu_is_a_reason(void **state)
{
	(void)state;
	watch_gpu("dgx-h100,hot=1,crawl=1");
	end_window();
	expect("gpu-slow",
	       "lowered its clock for 100 % of the time because it is too hot; it has 89 °C");
	assert_true(health_gpu_clock(h) == 345);
}

static void a_gpu_of_others_says_nothing(void **state)
{
	(void)state;
	watch_gpu("dgx-h100,hot=0,uncorrected=2");
	end_window();
	assert_int_equal(n_found, 0);
	assert_true(health_gpu_clock(h) == 1980);
}

/* --- Texts and processes ---------------------------------------------------------------------- */

static void the_process_with_the_most_time_is_found(void **state)
{
	struct health_user u;
	(void)state;
	put_stat("proc/100/stat", 100, "old", 0, 900000, 0, 3);
	put_stat("proc/101/stat", 101, "a) R (b\033[2J", 0, 100, 0, 3);
	put_stat("proc/102/stat", 102, "elsewhere", 0, 100, 0, 9);
	struct health_others *o = health_others_begin(root, 77);
	put_stat("proc/77/stat", 77, "muster-agent", 0, 90000, 0, 3);
	put_stat("proc/101/stat", 101, "a) R (b\033[2J", 0, 196, 0, 3);
	put_stat("proc/102/stat", 102, "elsewhere", 0, 200, 0, 9);
	assert_true(health_others_end(o, "2-3", 1, &u));
	assert_int_equal(u.pid, 101);
	assert_int_equal(u.cpu, 3);
	assert_true(u.share * (double)sysconf(_SC_CLK_TCK) > 95.9);
	assert_string_equal(u.name, "a)?R?(b?[2J");
	assert_false(health_others_end(health_others_begin(root, 77), "2-3", 1, &u));
}

static void lists_of_cpus_are_read(void **state)
{
	bool cpus[8] = { false };
	(void)state;
	assert_true(health_text_cpus("0,2-3,6-99\n", cpus, 8));
	assert_true(cpus[0] && !cpus[1] && cpus[2] && cpus[3] && !cpus[5] && cpus[6] && cpus[7]);
	assert_false(health_text_cpus("", cpus, 8));
	assert_false(health_text_cpus("a", cpus, 8));
	assert_false(health_text_cpus("1-2;3", cpus, 8));
}

static void a_disk_is_found_by_its_number(void **state)
{
	struct health_disk d;
	(void)state;
	const char *text = "   7       0 loop0 1 0 0 0 0 0 0 0 0 0 0\n"
			   " 259       1 nvme0n1 100 5 800 250 50 6 400 500 0 0 0\n";
	assert_true(health_text_disk(text, 259, 1, &d));
	assert_string_equal(d.name, "nvme0n1");
	assert_true(d.requests == 150 && d.seconds == 0.75);
	assert_false(health_text_disk(text, 8, 0, &d));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define NODE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		NODE_TEST(a_healthy_node_has_no_findings),
		NODE_TEST(a_limit_of_cores_is_found),
		NODE_TEST(version_2_and_the_groups_above_are_understood),
		NODE_TEST(a_wait_for_a_core_is_found),
		NODE_TEST(a_wait_that_is_throttled_counts_once),
		NODE_TEST(a_nice_value_is_found),
		NODE_TEST(short_memory_is_found),
		NODE_TEST(the_short_memory_of_others_is_not_its_own),
		NODE_TEST(swapping_is_found),
		NODE_TEST(heat_is_found),
		NODE_TEST(the_clock_of_its_cores_is_read),
		NODE_TEST(errors_of_a_link_give_one_alarm),
		NODE_TEST(the_link_whose_errors_increase_is_named),
		NODE_TEST(a_link_of_infiniband_that_fails_is_an_alarm),
		NODE_TEST(segments_that_are_sent_again_are_found),
		NODE_TEST(a_counter_that_falls_begins_again),
		NODE_TEST(defects_of_its_gpu_are_alarms),
		NODE_TEST(errors_of_the_program_are_not_its_gpus),
		NODE_TEST(a_hot_gpu_is_a_reason),
		NODE_TEST(a_gpu_of_others_says_nothing),
		NODE_TEST(the_process_with_the_most_time_is_found),
		NODE_TEST(lists_of_cpus_are_read),
		NODE_TEST(a_disk_is_found_by_its_number),
	};
	return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
