/* A GPU that was measured: its part of the calibration file, the nodes that it counts for, and what
 * the planner predicts with it. */
#include "plan/cost/calibration.h"
#include "plan/cost/chip.h"
#include "plan/cost/devices.h"
#include "plan/spec/job/job.h"

#include "base/file.h"
#include "tests/unit/tmpdir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void add(struct measured_chip *c, enum measured_storage storage, enum rate_class class,
		double a, double b, double d, double seconds)
{
	c->ops[c->n_ops++] = (struct measured_chip_op){ class, storage, { a, b, d }, seconds };
}

/* Times that no model predicts. */
static void sample(struct measured_chip *c)
{
	memset(c, 0, sizeof *c);
	snprintf(c->name, sizeof c->name, "NVIDIA H100 80GB HBM3");
	snprintf(c->date, sizeof c->date, "2026-11-24T00:00:00Z");
	c->units = 132;
	c->capability = 90;
	c->memory = 79.6 * (1 << 30);
	c->devices = 8;
	c->driver = 13000;
	c->to_host = 4e10;
	c->from_host = 3e10;
	add(c, MEASURED_FP32, RATE_PRODUCT_FWD, 4096, 4096, 4096, 1e-3);
	for (int form = RATE_PRODUCT_FWD; form <= RATE_PRODUCT_WEIGHT; form++) {
		add(c, MEASURED_BF16, (enum rate_class)form, 1024, 1024, 1024, 1e-5 * (form + 1));
		add(c, MEASURED_BF16, (enum rate_class)form, 8192, 8192, 8192, 3e-3 * (form + 1));
	}
	add(c, MEASURED_BF16, RATE_ATTENTION_FWD, 1024, 64, 1e10, 7e-5);
	add(c, MEASURED_BF16, RATE_ATTENTION_FWD, 4096, 64, 1e11, 4e-4);
	add(c, MEASURED_BF16, RATE_ATTENTION_FWD, 1024, 128, 1e10, 5e-5);
	add(c, MEASURED_BF16, RATE_NORM_FWD, 1e6, 0, 0, 2e-6);
	add(c, MEASURED_BF16, RATE_NORM_FWD, 1e8, 0, 0, 5e-5);
	add(c, MEASURED_FP8, RATE_PRODUCT_FWD, 8192, 8192, 8192, 1e-3);
	c->exchanges[c->n_exchanges++] = (struct measured_exchange){ .op = MEASURED_ALL_REDUCE,
								     .group = 8,
								     .n = 2,
								     .bytes = { 1e3, 1e9 },
								     .seconds = { 1e-5, 9e-3 } };
}

static struct measured_chip *sample_chip(void)
{
	struct measured_chip *c = malloc(sizeof *c);
	assert_non_null(c);
	sample(c);
	return c;
}

/* --- Predictions -------------------------------------------------------------------------- */

static struct node_kind h100(struct measured_chip *chip)
{
	struct node_kind k = { .device = "H100-SXM5-80GB",
			       .devices = 8,
			       .device_flops = 989e12,
			       .device_bandwidth = 3350e9,
			       .device_memory = 80.0 * (1 << 30),
			       .chip = chip };
	return k;
}

static void a_measured_operation_takes_its_measured_time(void **state)
{
	struct measured_chip *chip = sample_chip();
	struct node_kind k = h100(chip);
	struct cost_machine m;
	(void)state;
	cost_machine_of(&k, true, 1, &m);
	for (int i = 0; i < chip->n_ops; i++) {
		const struct measured_chip_op *op = &chip->ops[i];
		double eight = op->storage == MEASURED_FP8, got;
		if (op->storage == MEASURED_FP32)
			got = cost_machine_fp32_product(&m, topo_measured_chip_work(op));
		else if (op->class <= RATE_PRODUCT_WEIGHT)
			got = cost_machine_product(&m, op->class, op->size[0], op->size[1],
						   op->size[2], eight ? 1 : 2);
		else if (op->class <= RATE_ATTENTION_BWD)
			got = cost_machine_attention(&m, ATTENTION_MUSTER, op->class, op->size[2],
						     op->size[0], op->size[1]);
		else
			got = cost_machine_seconds(&m, op->class, op->size[0]);
		if (fabs(got / op->seconds - 1) > 1e-9)
			fail_msg("operation %d: %g s instead of %g s", i, got, op->seconds);
	}
	assert_float_equal(cost_machine_offload(&m, 3e10), 1 + m.op, 1e-9);
	assert_true(fabs(cost_machine_pace(&m) / (2.0 * 8192 * 8192 * 8192 / 3e-3) - 1) < 0.15);
	free(chip);
}

/* Each of them is as if the chip had not been measured, but for the start of an operation. */
static void what_was_not_measured_keeps_its_published_constants(void **state)
{
	struct measured_chip *chip = sample_chip();
	struct node_kind with = h100(chip), without = h100(NULL);
	struct cost_machine a, b;
	(void)state;
	cost_machine_of(&with, true, 1, &a);
	cost_machine_of(&without, true, 1, &b);
	assert_true(a.op == 1e-6 && b.op > a.op);
	assert_float_equal(cost_machine_seconds(&a, RATE_OPTIMIZER, 1e9) - a.op,
			   cost_machine_seconds(&b, RATE_OPTIMIZER, 1e9) - b.op, 1e-12);
	assert_float_equal(
		cost_machine_attention(&a, ATTENTION_MUSTER, RATE_ATTENTION_BWD, 1e12, 2048, 64) -
			a.op,
		cost_machine_attention(&b, ATTENTION_MUSTER, RATE_ATTENTION_BWD, 1e12, 2048, 64) -
			b.op,
		1e-12);
	assert_false(cost_machine_seconds(&a, RATE_NORM_FWD, 1e8) ==
		     cost_machine_seconds(&b, RATE_NORM_FWD, 1e8));
	cost_machine_of(&with, false, 1, &a);
	cost_machine_of(&without, false, 1, &b);
	assert_float_equal(cost_machine_seconds(&a, RATE_NORM_FWD, 1e8) - a.op,
			   cost_machine_seconds(&b, RATE_NORM_FWD, 1e8) - b.op, 1e-12);
	assert_float_equal(cost_machine_product(&a, RATE_PRODUCT_FWD, 4096, 4096, 4096, 4), 1e-3,
			   1e-12);
	free(chip);
}

static void a_chip_without_a_data_sheet_is_known_by_its_measurements(void **state)
{
	struct measured_chip *chip = sample_chip();
	struct node_kind k = { .device = "NVIDIA X1", .devices = 1, .chip = chip };
	struct cost_machine m;
	(void)state;
	cost_machine_of(&k, true, 1, &m);
	assert_int_equal(m.units, 132);
	assert_float_equal(cost_machine_product(&m, RATE_PRODUCT_WEIGHT, 8192, 8192, 8192, 2), 9e-3,
			   1e-12);
	free(chip);
}

static void the_text_names_what_is_measured_and_what_is_published(void **state)
{
	struct measured_chip *chip = sample_chip();
	struct node_kind k = h100(chip);
	struct buf text = BUF_INIT;
	struct job job;
	(void)state;
	assert_int_equal(job_words(NULL, 0, &job, NULL), 0);
	job.precision.dtype = DTYPE_BF16;
	job.precision.fp8 = FP8_OFF;
	cost_chip_text(&k, &job, &text);
	assert_string_equal(text.data,
			    "NVIDIA H100 80GB HBM3, measured in bf16 on 2026-11-24T00:00:00Z: "
			    "products, copies to the host; published: attention, norms, "
			    "activations, cross-entropy, copies and sums, optimizer, transfers "
			    "inside a node");
	buf_fini(&text);
	free(chip);
}

/* --- Nodes -------------------------------------------------------------------------------- */

static void write_file(const char *path, const struct calibration *c)
{
	struct buf text = BUF_INIT;
	calibration_write(c, &text);
	assert_int_equal(file_replace(path, text.data, text.len, NULL), 0);
	buf_fini(&text);
}

static struct calibration *sample_file(void)
{
	struct calibration *c = calloc(1, sizeof *c);
	struct measured_chip *chip = sample_chip();
	assert_non_null(c);
	assert_int_equal(calibration_here(c, NULL), 0);
	assert_int_equal(calibration_add_chip(c, chip, NULL), 0);
	assert_int_equal(calibration_add_chip(c, chip, NULL), 0);
	assert_int_equal(c->n_chips, 1);
	free(chip);
	return c;
}

static void only_nodes_with_the_measured_chip_take_its_figures(void **state)
{
	char dir[128], path[160];
	struct calibration *file = sample_file();
	struct cluster c;
	struct err e = ERR_INIT;
	(void)state;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(path, sizeof path, "%s/c.json", dir);
	file->cores++;                         /* another host: that matters for processors only */
	file->chips[0].exchanges[0].group = 4; /* as if the other four were not free */
	write_file(path, file);
	assert_int_equal(topo_cluster_open("dgx-h100:2", 0, &c, NULL), 0);
	assert_int_equal(calibration_apply(path, "auto", &c, &e), 0);
	assert_non_null(c.kinds[0].chip);
	assert_memory_equal(c.kinds[0].chip, &file->chips[0], sizeof file->chips[0]);
	assert_non_null(c.kinds[0].measured);
	assert_int_equal(c.kinds[0].measured->n_exchanges, 1);
	assert_int_equal(c.kinds[0].measured->exchanges[0].crowd, 4);
	assert_string_equal(c.figures, "");
	topo_cluster_free(&c);

	assert_int_equal(topo_cluster_open("dgx-a100:2", 0, &c, NULL), 0);
	assert_int_equal(calibration_apply(path, "auto", &c, &e), 0);
	assert_null(c.kinds[0].chip);
	assert_null(c.kinds[0].measured);
	assert_string_equal(c.figures, "published figures of A100-SXM4-80GB: the calibration has "
				       "NVIDIA H100 80GB HBM3, which is another chip");
	topo_cluster_free(&c);

	file->chips[0].devices = 4; /* its transfers are those of another host */
	file->chips[0].exchanges[0].group = 4;
	write_file(path, file);
	assert_int_equal(topo_cluster_open("dgx-h100:2", 0, &c, NULL), 0);
	assert_int_equal(calibration_apply(path, "auto", &c, &e), 0);
	assert_non_null(c.kinds[0].chip);
	assert_null(c.kinds[0].measured);
	topo_cluster_free(&c);
	remove(path);
	assert_int_equal(topo_cluster_open("dgx-h100:2", 0, &c, NULL), 0);
	assert_int_equal(calibration_apply(path, "auto", &c, &e), -1);
	topo_cluster_free(&c);
	remove(dir);
	free(file);
}

static void the_same_model_with_other_memory_is_another_chip(void **state)
{
	struct measured_chip *chip = sample_chip();
	struct node_kind k = h100(NULL);
	(void)state;
	assert_true(topo_measured_chip_is_of(chip, &k));
	chip->memory = 10.0 * (1 << 30); /* an instance of it (MIG) */
	assert_false(topo_measured_chip_is_of(chip, &k));
	free(chip);
}

/* --- The file ----------------------------------------------------------------------------- */

static void the_host_and_the_chips_are_kept_apart(void **state)
{
	char dir[128], file[160], path[200];
	struct calibration *c = sample_file(), *back = calloc(1, sizeof *back);
	(void)state;
	assert_non_null(back);
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(file, sizeof file, "%s/c.json", dir);
	c->flops = 1e12;
	assert_int_equal(calibration_save(c, file, NULL), 0);
	assert_int_equal(calibration_begin(file, path, sizeof path, back, NULL), 0);
	assert_true(back->flops == 1e12);
	assert_memory_equal(back->chips, c->chips, sizeof c->chips);
	c->cores++;
	assert_int_equal(calibration_save(c, file, NULL), 0);
	assert_int_equal(calibration_begin(file, path, sizeof path, back, NULL), 0);
	assert_true(back->flops == 0 && back->cores == c->cores - 1);
	assert_int_equal(back->n_chips, 1);
	assert_memory_equal(back->chips, c->chips, sizeof c->chips);
	remove(file);
	remove(dir);
	free(c);
	free(back);
}

static void a_damaged_chip_is_refused_by_name(void **state)
{
	/* clang-format off */
	static const struct { const char *was, *is; } rows[] = {
		{ "\"units\": 132", "\"units\": 0" },
		{ "\"units\": 132", "\"units\": 132, \"wings\": 2" },
		{ "\"memory\"", "\"memories\"" },
		{ "\"name\": \"NVIDIA", "\"name\": \"\\u001b" },
		{ "\"bf16\"", "\"bf15\"" },
		{ "\"norm_fwd\"", "\"norm_sideways\"" },
		{ "\"fp8\": {\n          \"product_fwd\"", "\"fp8\": {\n          \"norm_fwd\"" },
		{ "100000000.0,", "1000000.0," },  /* the same size twice */
		{ "2e-06", "-2e-06" },
		{ "1.9999999999999999e-6", "0" },
		{ "\"group\": 8", "\"group\": 9" },
		{ "\"nccl\",", "\"pigeon\"," },
		{ "\"all_reduce\"", "\"all_reject\"" },
		{ "\"chips\": [", "\"chips\": [3, " },
	};
	/* clang-format on */
	struct calibration *c = sample_file(), *back = calloc(1, sizeof *back);
	struct buf text = BUF_INIT;
	int tried = 0;
	(void)state;
	assert_non_null(back);
	calibration_write(c, &text);
	assert_int_equal(calibration_parse(text.data, text.len, "f", back, NULL), 0);
	assert_memory_equal(back, c, sizeof *c);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf bad = BUF_INIT;
		struct err e = ERR_INIT;
		const char *at = strstr(text.data, rows[i].was);
		if (!at)
			continue; /* another form of the same number */
		buf_add(&bad, text.data, (size_t)(at - text.data));
		buf_puts(&bad, rows[i].is);
		buf_puts(&bad, at + strlen(rows[i].was));
		if (!calibration_parse(bad.data, bad.len, "some/file", back, &e))
			fail_msg("accepted: %s", rows[i].is);
		assert_int_equal(e.code, ERR_USAGE);
		assert_memory_equal(e.text, "some/file: ", 11);
		tried++;
		buf_fini(&bad);
	}
	assert_true(tried >= 12);
	buf_fini(&text);
	free(c);
	free(back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_measured_operation_takes_its_measured_time),
		cmocka_unit_test(what_was_not_measured_keeps_its_published_constants),
		cmocka_unit_test(a_chip_without_a_data_sheet_is_known_by_its_measurements),
		cmocka_unit_test(the_text_names_what_is_measured_and_what_is_published),
		cmocka_unit_test(only_nodes_with_the_measured_chip_take_its_figures),
		cmocka_unit_test(the_same_model_with_other_memory_is_another_chip),
		cmocka_unit_test(the_host_and_the_chips_are_kept_apart),
		cmocka_unit_test(a_damaged_chip_is_refused_by_name),
	};
	return cmocka_run_group_tests_name("a measured GPU", tests, NULL, NULL);
}
