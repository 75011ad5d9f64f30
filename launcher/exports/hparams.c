#include "launcher/exports/hparams.h"

#include "launcher/exports/protobuf.h"
#include "launcher/exports/tfevents.h"
#include "plan/spec/job/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of fields and values in TensorBoard's plugins/hparams/{api,plugin_data}.proto and in
 * Protocol Buffers' struct.proto. */
enum {
	DATA_VERSION = 1,
	DATA_EXPERIMENT = 2,
	DATA_START = 3,
	DATA_END = 4,

	EXPERIMENT_PARAMETER = 4,
	EXPERIMENT_METRIC = 5,

	PARAMETER_NAME = 1,
	PARAMETER_TYPE = 4,
	TYPE_STRING = 1,
	TYPE_BOOL = 2,
	TYPE_NUMBER = 3,

	METRIC_NAME = 1,
	METRIC_NAME_TAG = 2,

	START_PARAMETER = 1,
	START_GROUP = 4,
	START_TIME = 5,
	END_STATUS = 1,
	END_TIME = 2,

	ENTRY_KEY = 1,
	ENTRY_VALUE = 2,
	VALUE_NUMBER = 2,
	VALUE_STRING = 3,
	VALUE_BOOL = 4,
};

static const char plugin[] = "hparams";

/* Whether the page shows the key. */
static bool is_shown(const struct job_key *key)
{
	static const char *const sections[] = { "model",     "parallel", "recompute",
						"precision", "batch",    "optimizer" };
	for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
		if (!strcmp(key->section, sections[i]))
			return true;
	return !strcmp(key->section, "job") &&
	       (!strcmp(key->name, "steps") || !strcmp(key->name, "seed"));
}

static int type_of(const struct job_key *key)
{
	if (key->type == JOB_INT || key->type == JOB_REAL)
		return TYPE_NUMBER;
	return key->type == JOB_BOOL ? TYPE_BOOL : TYPE_STRING;
}

static void put_name(struct buf *b, int field, const struct job_key *key)
{
	struct buf name = BUF_INIT;
	buf_printf(&name, "%s.%s", key->section, key->name);
	exports_pb_message(b, field, &name);
}

static void put_parameter_info(struct buf *experiment, const struct job_key *key)
{
	struct buf info = BUF_INIT;
	put_name(&info, PARAMETER_NAME, key);
	exports_pb_int(&info, PARAMETER_TYPE, type_of(key));
	exports_pb_message(experiment, EXPERIMENT_PARAMETER, &info);
}

static void put_metric_info(struct buf *experiment, const char *tag)
{
	struct buf info = BUF_INIT, name = BUF_INIT;
	exports_pb_text(&name, METRIC_NAME_TAG, tag);
	exports_pb_message(&info, METRIC_NAME, &name);
	exports_pb_message(experiment, EXPERIMENT_METRIC, &info);
}

static void put_parameter(struct buf *start, const struct job_key *key, const struct job *job)
{
	struct buf entry = BUF_INIT, value = BUF_INIT, text = BUF_INIT;
	job_value_write(key, job, &text);
	if (type_of(key) == TYPE_NUMBER)
		exports_pb_double(&value, VALUE_NUMBER, strtod(buf_str(&text), NULL));
	else if (type_of(key) == TYPE_BOOL)
		exports_pb_int(&value, VALUE_BOOL, !strcmp(buf_str(&text), "yes"));
	else
		exports_pb_text(&value, VALUE_STRING, buf_str(&text));
	buf_fini(&text);
	put_name(&entry, ENTRY_KEY, key);
	exports_pb_message(&entry, ENTRY_VALUE, &value);
	exports_pb_message(start, START_PARAMETER, &entry);
}

/* Puts a record of the plugin with one message, and frees it. */
static void put_data(struct buf *out, double time, const char *tag, int field, struct buf *message)
{
	struct buf data = BUF_INIT;
	exports_pb_int(&data, DATA_VERSION, 0);
	exports_pb_message(&data, field, message);
	exports_tf_plugin(out, time, tag, plugin, &data);
}

void exports_hparams_start(struct buf *out, double time, const struct job *job)
{
	struct buf experiment = BUF_INIT, start = BUF_INIT;
	for (int i = 0; i < job_n_keys; i++) {
		if (!is_shown(&job_keys[i]))
			continue;
		put_parameter_info(&experiment, &job_keys[i]);
		put_parameter(&start, &job_keys[i], job);
	}
	put_metric_info(&experiment, EXPORTS_TAG_LOSS);
	put_metric_info(&experiment, EXPORTS_TAG_EVAL_LOSS);
	exports_pb_text(&start, START_GROUP, job->job.name);
	exports_pb_double(&start, START_TIME, time);
	put_data(out, time, "_hparams_/experiment", DATA_EXPERIMENT, &experiment);
	put_data(out, time, "_hparams_/session_start_info", DATA_START, &start);
}

void exports_hparams_end(struct buf *out, double time, enum exports_tf_status status)
{
	struct buf end = BUF_INIT;
	exports_pb_int(&end, END_STATUS, status);
	exports_pb_double(&end, END_TIME, time);
	put_data(out, time, "_hparams_/session_end_info", DATA_END, &end);
}
