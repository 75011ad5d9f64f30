/* Measured links: the fit, the file, and the machines whose plans use them. */
#include "plan/cost/calibration.h"

#include "base/file.h"
#include "tests/unit/tmpdir.h"
#include "plan/place/exchange.h"
#include "plan/place/group_links.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

static const struct calibration_link truth = { .known = true, .alpha = 3e-6, .beta = 2.5e-10 };

static struct measured sample_measured(void)
{
	struct measured m = { .cores = 2 };
	struct measured_machine machine = {
		.agents = 2, .threads = 1, .machine = { .op = 1e-6, .packing = { 2e10, 3e10, 0 } }
	};
	struct measured_exchange exchange = { .op = MEASURED_ALL_REDUCE,
					      .group = 2,
					      .crowd = 2,
					      .n = 2,
					      .bytes = { 1e3, 1e5 },
					      .seconds = { 1e-5, 1e-4 } };
	machine.machine.rates[RATE_PRODUCT_FWD] =
		(struct rate_curve){ 2, { 1e6, 1e8 }, { 4e10, 8e10 } };
	machine.machine.rates[RATE_MOVED] = (struct rate_curve){ 1, { 1e6 }, { 1e10 } };
	topo_measured_add_machine(&m, &machine);
	machine.agents = 1;
	machine.machine.rates[RATE_PRODUCT_FWD].rate[1] = 1e11;
	topo_measured_add_machine(&m, &machine);
	machine.threads = 2;
	machine.machine.rates[RATE_PRODUCT_FWD].rate[1] = 1.5e11;
	topo_measured_add_machine(&m, &machine);
	topo_measured_add_exchange(&m, &exchange);
	exchange.crowd = 8;
	exchange.seconds[0] = 8e-5;
	topo_measured_add_exchange(&m, &exchange);
	exchange.group = 8;
	exchange.seconds[0] = 2e-4;
	topo_measured_add_exchange(&m, &exchange);
	exchange.transport = MEASURED_TCP;
	exchange.seconds[0] = 4e-4;
	topo_measured_add_exchange(&m, &exchange);
	return m;
}

static struct calibration sample_file(void)
{
	struct calibration c = { .ranks = 8, .flops = 4e11 };
	c.measured = sample_measured();
	assert_int_equal(calibration_here(&c, NULL), 0);
	c.links[CALIBRATION_SHM] = (struct calibration_link){
		.known = true, .alpha = 3e-6, .beta = 2.5e-10, .error = 0.1, .points = 9
	};
	c.links[CALIBRATION_TCP] = (struct calibration_link){
		.known = true, .alpha = 2e-5, .beta = 1e-9, .error = 0.2, .points = 9
	};
	return c;
}

static void a_fit_recovers_the_parameters_of_its_samples(void **state)
{
	(void)state;
	struct calibration_sample samples[16];
	struct calibration_link got;
	int n = 0;
	for (int ranks = 2; ranks <= 8; ranks *= 2)
		for (double bytes = 1024; bytes <= 1 << 22; bytes *= 16, n++)
			samples[n] = (struct calibration_sample){
				ranks, bytes, calibration_predict(&truth, ranks, bytes)
			};
	assert_true(calibration_fit(samples, n, &got));
	assert_float_equal(got.alpha / truth.alpha, 1, 1e-6);
	assert_float_equal(got.beta / truth.beta, 1, 1e-6);
	assert_true(got.error < 1e-6);
}

static void samples_that_determine_nothing_are_not_fitted(void **state)
{
	(void)state;
	const struct calibration_sample same[] = { { 2, 1024, 1e-5 }, { 2, 1024, 1e-5 } };
	struct calibration_link got = { .points = 77 };
	assert_false(calibration_fit(same, 1, &got));
	assert_false(calibration_fit(same, 0, &got));
	assert_int_equal(got.points, 77);
}

/* Times that fall with the size would need a negative time per byte. */
static void alpha_and_beta_are_never_negative(void **state)
{
	(void)state;
	const struct calibration_sample falling[] = { { 2, 1024, 1e-4 },
						      { 2, 65536, 5e-5 },
						      { 2, 1 << 20, 2e-5 } };
	const struct calibration_sample steep[] = { { 2, 1024, 1e-9 },
						    { 2, 65536, 1e-4 },
						    { 2, 1 << 20, 1e-2 } };
	struct calibration_link got;
	assert_true(calibration_fit(falling, 3, &got));
	assert_true(got.alpha > 0 && got.beta >= 0);
	assert_true(calibration_fit(steep, 3, &got));
	assert_true(got.alpha >= 0 && got.beta > 0);
}

static void a_file_reads_back_and_no_part_of_it_does(void **state)
{
	(void)state;
	struct calibration c = sample_file(), back;
	struct buf text = BUF_INIT;
	calibration_write(&c, &text);
	assert_int_equal(calibration_parse(text.data, text.len, "f", &back, NULL), 0);
	assert_string_equal(back.cpu, c.cpu);
	assert_string_equal(back.date, c.date);
	assert_int_equal(back.cores, c.cores);
	assert_true(back.links[CALIBRATION_TCP].alpha == 2e-5 &&
		    back.links[CALIBRATION_SHM].beta == 2.5e-10);
	assert_float_equal(back.flops, 4e11, 0);
	assert_memory_equal(&back, &c, sizeof c);
	for (size_t n = 0; n + 2 < text.len; n++) {
		struct err e = ERR_INIT;
		assert_int_equal(calibration_parse(text.data, n, "some/file", &back, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		assert_memory_equal(e.text, "some/file: ", 11);
	}
	buf_fini(&text);
}

static void figures_out_of_range_are_refused(void **state)
{
	(void)state;
	static const char form[] = "{\"version\":%s,\"kind\":\"%s\",\"host\":\"h\",\"cpu\":\"c\","
				   "\"cores\":2,\"ranks\":8,\"date\":\"d\",\"links\":"
				   "[{\"transport\":\"%s\",\"pattern\":\"all_reduce\",\"alpha_s\":%"
				   "s,\"beta_s_per_byte\":1e-9,\"error\":0.1,\"points\":9}]}";
	static const struct {
		const char *version, *kind, *transport, *alpha;
		int rc;
	} rows[] = {
		{ "2", "muster-calibration", "shm", "1e-6", 0 },
		{ "1", "muster-calibration", "shm", "1e-6", -1 },
		{ "2", "recipe", "shm", "1e-6", -1 },
		{ "2", "muster-calibration", "pigeon", "1e-6", -1 },
		{ "2", "muster-calibration", "shm", "-1e-6", -1 },
		{ "2", "muster-calibration", "shm", "11", -1 },
		{ "2", "muster-calibration", "shm", "\"1\"", -1 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[1024];
		struct calibration c;
		int n = snprintf(text, sizeof text, form, rows[i].version, rows[i].kind,
				 rows[i].transport, rows[i].alpha);
		assert_int_equal(calibration_parse(text, (size_t)n, "f", &c, NULL), rows[i].rc);
	}
}

static void links_and_gemm_may_each_lack_but_not_both(void **state)
{
	(void)state;
	static const char form[] = "{\"version\":2,\"kind\":\"muster-calibration\",\"host\":\"h\","
				   "\"cpu\":\"c\",\"cores\":2,\"ranks\":%d,"
				   "\"date\":\"d\",\"links\":[%s]%s}";
	static const char link[] = "{\"transport\":\"shm\",\"pattern\":\"all_reduce\",\"alpha_s\":"
				   "1e-6,\"beta_s_per_byte\":1e-9,"
				   "\"error\":0.1,\"points\":9}";
	static const struct {
		int ranks;
		bool link;
		const char *gemm;
		int rc;
	} rows[] = {
		{ 2, true, "", 0 },
		{ 0, false, ",\"gemm\":{\"flops\":1e11}", 0 },
		{ 2, true, ",\"gemm\":{\"flops\":1e11}", 0 },
		{ 0, false, "", -1 },
		{ 0, true, "", -1 },
		{ 2, false, ",\"gemm\":{\"flops\":1e11}", -1 },
		{ 2, true, ",\"gemm\":{\"flops\":0}", -1 },
		{ 2, true, ",\"gemm\":{\"flops\":1e11,\"threads\":2}", -1 },
		{ 2, true, ",\"gemm\":1e11", -1 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[1024];
		struct calibration c;
		int n = snprintf(text, sizeof text, form, rows[i].ranks, rows[i].link ? link : "",
				 rows[i].gemm);
		assert_int_equal(calibration_parse(text, (size_t)n, "f", &c, NULL), rows[i].rc);
	}
}

static void machines_and_exchanges_out_of_range_are_refused(void **state)
{
	(void)state;
	static const char form[] =
		"{\"version\":2,\"kind\":\"muster-calibration\",\"host\":\"h\",\"cpu\":\"c\","
		"\"cores\":2,\"ranks\":0,"
		"\"date\":\"d\",\"links\":[],\"machines\":[%s],\"exchanges\":[%s]}";
#define MACHINE(agents, storage, rates) \
	"{\"agents\":" agents ",\"threads\":1,\"storage\":\"" storage \
	"\",\"op_s\":0,\"packing\":[0,1e9,0],\"rates\":{" rates "}}"
#define RATES "\"product_fwd\":[[1,1e9],[2,2e9]],\"moved\":[[1,1e9]]"
#define EXCHANGE(op, group, points) \
	"{\"transport\":\"shm\",\"op\":\"" op "\",\"group\":" group \
	",\"crowd\":4,\"seconds\":[" points "]}"
	/* clang-format off */
	static const struct { const char *machines, *exchanges; int rc; } rows[] = {
		{ MACHINE("1", "fp32", RATES), EXCHANGE("message", "2", "[8,1e-5],[16,1e-5]"), 0 },
		{ MACHINE("1", "bf16", RATES) "," MACHINE("1", "fp32", RATES), "", 0 },
		{ MACHINE("1", "fp32", RATES) "," MACHINE("1", "fp32", RATES), "", -1 },
		{ MACHINE("0", "fp32", RATES), "", -1 },
		{ "{\"agents\":1,\"threads\":1,\"storage\":\"fp32\",\"op_s\":0,\"packing\":[0,0],\"rates\":{" RATES "}}", "", -1 },
		{ MACHINE("1", "fp8", RATES), "", -1 },
		{ MACHINE("1", "fp32", "\"moved\":[[1,1e9]]"), "", -1 },
		{ MACHINE("1", "fp32", RATES ",\"flying\":[[1,1e9]]"), "", -1 },
		{ MACHINE("1", "fp32", RATES ",\"rope\":[]"), "", -1 },
		{ MACHINE("1", "fp32", RATES ",\"rope\":[[2,1e9],[2,1e9]]"), "", -1 },
		{ MACHINE("1", "fp32", RATES ",\"rope\":[[2,0]]"), "", -1 },
		{ "", EXCHANGE("broadcast", "2", "[8,1e-5]"), -1 },
		{ "", EXCHANGE("message", "1", "[8,1e-5]"), -1 },
		{ "", EXCHANGE("message", "5", "[8,1e-5]"), -1 },
		{ "", EXCHANGE("message", "2", "[8,0]"), -1 },
		{ "", EXCHANGE("message", "2", ""), -1 },
		{ "", EXCHANGE("message", "2", "[8,1e-5]") "," EXCHANGE("message", "2", "[8,1e-5]"), -1 },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[2048];
		struct calibration c;
		int n = snprintf(text, sizeof text, form, rows[i].machines, rows[i].exchanges);
		assert_int_equal(calibration_parse(text, (size_t)n, "f", &c, NULL), rows[i].rc);
	}
}

/* --- Queries --- */

static double fastest(const struct measured *m, int agents, int threads)
{
	struct cost_machine got;
	assert_true(cost_measured_machine(m, agents, threads, false, &got));
	return cost_curve_at(&got.rates[RATE_PRODUCT_FWD], 1e12);
}

static void an_agent_is_as_fast_as_those_measured_with_as_many_threads_and_neighbours(void **state)
{
	(void)state;
	struct measured m = sample_measured();
	struct cost_machine got;
	assert_float_equal(fastest(&m, 1, 1), 1e11, 1);
	assert_float_equal(fastest(&m, 2, 1), 8e10, 1);
	assert_float_equal(fastest(&m, 8, 1), 8e10, 1);
	assert_float_equal(fastest(&m, 1, 2), 1.5e11, 1);
	assert_float_equal(fastest(&m, 4, 2), 1.5e11, 1);
	assert_false(cost_measured_machine(&m, 1, 1, true, &got));
	assert_float_equal(place_exchange_share(&m, 1), 1, 0);
	assert_float_equal(place_exchange_share(&m, 5), 2.5, 0);
}

static void an_exchange_takes_what_was_measured_beside_as_many_ranks(void **state)
{
	(void)state;
	struct measured m = sample_measured();
	assert_float_equal(place_exchange_seconds(&m, MEASURED_ALL_REDUCE, 2, 2, 1e3), 1e-5, 1e-12);
	assert_float_equal(place_exchange_seconds(&m, MEASURED_ALL_REDUCE, 2, 2, 8), 1e-5, 1e-12);
	assert_float_equal(place_exchange_seconds(&m, MEASURED_ALL_REDUCE, 2, 2, 1e4), 3.1623e-5,
			   1e-9);
	assert_float_equal(place_exchange_seconds(&m, MEASURED_ALL_REDUCE, 2, 2, 1e6), 1e-3, 1e-12);
	/* Eight ranks on two cores: each rank has a fourth of a core. */
	assert_float_equal(place_exchange_seconds(&m, MEASURED_ALL_REDUCE, 2, 8, 1e3), 2e-5, 1e-12);
	assert_float_equal(place_exchange_seconds(&m, MEASURED_ALL_REDUCE, 5, 8, 1e3), 3.5e-5,
			   1e-12);
	assert_float_equal(place_exchange_seconds(&m, MEASURED_ALL_REDUCE, 1, 8, 1e3), 0, 0);
	assert_float_equal(place_exchange_seconds(&m, MEASURED_MESSAGE, 2, 2, 1e3), 0, 0);
	/* A meeting costs no more than it does after the longest work. */
	const struct measured_exchange meeting = { .op = MEASURED_MEETING,
						   .group = 2,
						   .crowd = 2,
						   .n = 2,
						   .bytes = { 100, 10000 },
						   .seconds = { 1e-5, 1e-3 } };
	assert_float_equal(place_exchange_meeting(&m, 2, 2, 1e-3), 0, 0);
	topo_measured_add_exchange(&m, &meeting);
	assert_float_equal(place_exchange_meeting(&m, 2, 2, 1e-3), 1e-4, 1e-12);
	assert_float_equal(place_exchange_meeting(&m, 2, 2, 10), 1e-3, 1e-12);
	m.transport = MEASURED_TCP;
	assert_float_equal(place_exchange_seconds(&m, MEASURED_ALL_REDUCE, 8, 8, 1e3), 1e-4, 1e-12);
}

/* Half an all-reduce only stands for what was not measured. */
static void a_gather_and_a_scatter_take_what_was_measured_of_each(void **state)
{
	(void)state;
	struct measured m = sample_measured();
	const struct group_links s = {
		.ranks = 2, .nodes = 1, .per_node = 2, .crowd = 2, .busy = 1, .measured = &m
	};
	struct measured_exchange x = { .op = MEASURED_ALL_GATHER,
				       .group = 2,
				       .crowd = 2,
				       .n = 1,
				       .bytes = { 1e3 },
				       .seconds = { 7e-6 } };
	assert_float_equal(place_seconds_gather(&s, 1e3), 5e-6, 1e-12);
	assert_float_equal(place_seconds_scatter(&s, 1e3), 5e-6, 1e-12);
	topo_measured_add_exchange(&m, &x);
	assert_float_equal(place_seconds_gather(&s, 1e3), 7e-6, 1e-12);
	assert_float_equal(place_seconds_scatter(&s, 1e3), 5e-6, 1e-12);
	x.op = MEASURED_REDUCE_SCATTER;
	x.seconds[0] = 4e-6;
	topo_measured_add_exchange(&m, &x);
	assert_float_equal(place_seconds_scatter(&s, 1e3), 4e-6, 1e-12);
	assert_float_equal(place_seconds_all_reduce(&s, 1e3), 1e-5, 1e-12);
}

/* The machine has 5e10 FLOP/s, packs 4e9 bytes of weights per second, and moves small tensors
 * faster. */
static void curves_go_through_what_was_measured(void **state)
{
	(void)state;
	struct measured_point points[40];
	struct machine_rates got;
	struct cost_machine machine;
	int n = 0;
	for (double rows = 64; rows <= 1024; rows *= 2)
		for (double side = 256; side <= 2048; side *= 2) {
			double flops = 2 * rows * side * side, weights = 4 * side * side;
			points[n++] = (struct measured_point){ RATE_PRODUCT_FWD, flops, flops,
							       flops / 5e10 + weights / 4e9,
							       weights };
		}
	assert_false(cost_measured_fit(points, n, &got));
	points[n++] = (struct measured_point){ RATE_MOVED, 1e6, 1e6, 1e-3, 0 };
	points[n++] = (struct measured_point){ RATE_MOVED, 1e4, 1e4, 1e-6, 0 };
	assert_true(cost_measured_fit(points, n, &got));
	cost_measured_rates(&got, &machine);
	assert_float_equal(got.packing[RATE_PRODUCT_FWD], 4e9, 1);
	assert_float_equal(cost_machine_product(&machine, RATE_PRODUCT_FWD, 128, 300, 400, 4) /
				   (2.0 * 128 * 300 * 400 / 5e10 + 4.0 * 300 * 400 / 4e9),
			   1, 1e-9);
	assert_int_equal(got.rates[RATE_MOVED].n, 2);
	assert_float_equal(cost_machine_seconds(&machine, RATE_MOVED, 1e4), 1e-6, 1e-15);
	assert_float_equal(cost_machine_seconds(&machine, RATE_MOVED, 1e6), 1e-3, 1e-12);
	assert_int_equal(got.rates[RATE_ROPE].n, 0);
}

static void a_tool_keeps_the_parts_that_other_tools_measured(void **state)
{
	(void)state;
	char dir[128], file[160], path[200];
	struct calibration c, mine = sample_file();
	struct stat st;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(file, sizeof file, "%s/a/b.json", dir);
	assert_int_equal(calibration_begin(file, path, sizeof path, &c, NULL), 0);
	assert_string_equal(path, file);
	assert_true(c.ranks == 0 && c.flops == 0 && c.cores > 0 && !c.links[0].known);
	assert_int_equal(calibration_save(&mine, path, NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(calibration_begin(file, path, sizeof path, &c, NULL), 0);
	assert_true(c.ranks == 8 && c.flops == 4e11 && c.links[CALIBRATION_TCP].known);
	mine.cores++;
	assert_int_equal(calibration_save(&mine, path, NULL), 0);
	assert_int_equal(calibration_begin(file, path, sizeof path, &c, NULL), 0);
	assert_true(c.ranks == 0 && c.flops == 0 && c.cores == mine.cores - 1);
	remove(file);
	*strrchr(file, '/') = '\0';
	remove(file);
	remove(dir);
}

/* --- In a plan --- */

static void write_file(const char *path, const struct calibration *c)
{
	struct buf text = BUF_INIT;
	calibration_write(c, &text);
	assert_int_equal(file_replace(path, text.data, text.len, NULL), 0);
	buf_fini(&text);
}

static void a_plan_takes_the_figures_of_its_own_machine_only(void **state)
{
	(void)state;
	char dir[128], muster[160], path[200];
	struct cluster c;
	struct err e = ERR_INIT;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(muster, sizeof muster, "%s/muster", dir);
	snprintf(path, sizeof path, "%s/calibration.json", muster);
	assert_int_equal(file_make_dirs(muster, NULL), 0);
	setenv("XDG_CONFIG_HOME", dir, 1);
	struct calibration file = sample_file();
	write_file(path, &file);

	assert_int_equal(topo_cluster_open("local", 2, &c, NULL), 0);
	double estimate = c.kinds[0].link_bandwidth;
	assert_int_equal(calibration_apply("none", "auto", &c, &e), 0);
	assert_float_equal(c.kinds[0].link_bandwidth, estimate, 0);
	assert_int_equal(calibration_apply("auto", "auto", &c, &e), 0);
	assert_float_equal(c.kinds[0].link_bandwidth, 4e9, 1);
	assert_float_equal(c.kinds[0].device_flops * c.kinds[0].devices, 4e11, 1);
	assert_non_null(strstr(c.figures, "8 ranks and every operation"));
	assert_non_null(c.kinds[0].measured);
	assert_int_equal(c.kinds[0].measured->transport, MEASURED_SHM);
	assert_int_equal(calibration_apply(path, "tcp", &c, &e), 0);
	assert_float_equal(c.kinds[0].link_bandwidth, 1e9, 1);
	assert_int_equal(c.kinds[0].measured->transport, MEASURED_TCP);
	topo_cluster_free(&c);

	file.cores++;
	write_file(path, &file);
	assert_int_equal(topo_cluster_open("local", 2, &c, NULL), 0);
	assert_int_equal(calibration_apply("auto", "auto", &c, &e), 0);
	assert_float_equal(c.kinds[0].link_bandwidth, estimate, 0);
	assert_non_null(strstr(c.figures, "estimates"));
	assert_int_equal(calibration_apply(path, "auto", &c, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	topo_cluster_free(&c);

	assert_int_equal(topo_cluster_open("dgx-h100:2", 0, &c, NULL), 0);
	estimate = c.kinds[0].link_bandwidth;
	assert_int_equal(calibration_apply(path, "auto", &c, &e), 0);
	assert_float_equal(c.kinds[0].link_bandwidth, estimate, 0);
	topo_cluster_free(&c);
	remove(path);
	remove(muster);
	remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fit_recovers_the_parameters_of_its_samples),
		cmocka_unit_test(samples_that_determine_nothing_are_not_fitted),
		cmocka_unit_test(alpha_and_beta_are_never_negative),
		cmocka_unit_test(a_file_reads_back_and_no_part_of_it_does),
		cmocka_unit_test(figures_out_of_range_are_refused),
		cmocka_unit_test(links_and_gemm_may_each_lack_but_not_both),
		cmocka_unit_test(machines_and_exchanges_out_of_range_are_refused),
		cmocka_unit_test(
			an_agent_is_as_fast_as_those_measured_with_as_many_threads_and_neighbours),
		cmocka_unit_test(an_exchange_takes_what_was_measured_beside_as_many_ranks),
		cmocka_unit_test(a_gather_and_a_scatter_take_what_was_measured_of_each),
		cmocka_unit_test(curves_go_through_what_was_measured),
		cmocka_unit_test(a_tool_keeps_the_parts_that_other_tools_measured),
		cmocka_unit_test(a_plan_takes_the_figures_of_its_own_machine_only),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
