#include "launcher/exports/tfevents.h"

#include "launcher/exports/crc32c.h"
#include "launcher/exports/protobuf.h"

#include <stdio.h>
#include <string.h>

/* Numbers of fields and values in TensorFlow's event.proto, summary.proto and tensor.proto. */
enum {
	EVENT_WALL_TIME = 1,
	EVENT_STEP = 2,
	EVENT_FILE_VERSION = 3,
	EVENT_SUMMARY = 5,
	EVENT_SESSION_LOG = 7,

	SESSION_LOG_STATUS = 1,
	SESSION_LOG_START = 1,

	SUMMARY_VALUE = 1,
	VALUE_TAG = 1,
	VALUE_SIMPLE = 2,
	VALUE_TENSOR = 8,
	VALUE_METADATA = 9,

	METADATA_PLUGIN = 1,
	METADATA_DATA_CLASS = 4,
	DATA_CLASS_TENSOR = 2,
	PLUGIN_NAME = 1,
	PLUGIN_CONTENT = 2,

	TENSOR_DTYPE = 1,
	TENSOR_SHAPE = 2,
	TENSOR_STRING = 8,
	TENSOR_IS_FLOAT = 1,
	TENSOR_IS_STRING = 7,
	SHAPE_DIM = 2,
	DIM_SIZE = 1,
};

static void put_little(struct buf *b, uint64_t value, size_t n)
{
	unsigned char out[8];
	for (size_t i = 0; i < n; i++)
		out[i] = (unsigned char)(value >> 8 * i);
	buf_add(b, out, n);
}

/* Frames the event and frees it. */
static void put_record(struct buf *out, struct buf *event)
{
	unsigned char length[8];
	if (buf_failed(event)) {
		out->failed = true;
	} else {
		for (size_t i = 0; i < sizeof length; i++)
			length[i] = (unsigned char)((uint64_t)event->len >> 8 * i);
		buf_add(out, length, sizeof length);
		put_little(out, exports_crc32c_masked(length, sizeof length), 4);
		buf_add(out, event->data, event->len);
		put_little(out, exports_crc32c_masked(event->data, event->len), 4);
	}
	buf_fini(event);
}

static struct buf new_event(double time, int64_t step)
{
	struct buf event = BUF_INIT;
	exports_pb_double(&event, EVENT_WALL_TIME, time);
	exports_pb_int(&event, EVENT_STEP, step);
	return event;
}

/* Puts a record with a summary of one or more values, and frees it. */
static void put_summary(struct buf *out, double time, int64_t step, struct buf *summary)
{
	struct buf event = new_event(time, step);
	exports_pb_message(&event, EVENT_SUMMARY, summary);
	put_record(out, &event);
}

void exports_tf_version(struct buf *out, double time)
{
	struct buf event = new_event(time, 0);
	exports_pb_text(&event, EVENT_FILE_VERSION, "brain.Event:2");
	put_record(out, &event);
}

void exports_tf_restart(struct buf *out, double time, int64_t step)
{
	struct buf event = new_event(time, step), log = BUF_INIT;
	exports_pb_int(&log, SESSION_LOG_STATUS, SESSION_LOG_START);
	exports_pb_message(&event, EVENT_SESSION_LOG, &log);
	put_record(out, &event);
}

void exports_tf_scalars(struct buf *out, double time, int64_t step, const struct exports_scalar *s,
			int n)
{
	struct buf summary = BUF_INIT;
	for (int i = 0; i < n; i++) {
		struct buf value = BUF_INIT;
		exports_pb_text(&value, VALUE_TAG, s[i].tag);
		exports_pb_float(&value, VALUE_SIMPLE, (float)s[i].value);
		exports_pb_message(&summary, SUMMARY_VALUE, &value);
	}
	put_summary(out, time, step, &summary);
}

/* The value's metadata: the plugin that shows it, and what that plugin reads. Frees `content`. */
static void put_metadata(struct buf *value, const char *plugin, struct buf *content)
{
	struct buf metadata = BUF_INIT, data = BUF_INIT;
	exports_pb_text(&data, PLUGIN_NAME, plugin);
	exports_pb_message(&data, PLUGIN_CONTENT, content);
	exports_pb_message(&metadata, METADATA_PLUGIN, &data);
	exports_pb_int(&metadata, METADATA_DATA_CLASS, DATA_CLASS_TENSOR);
	exports_pb_message(value, VALUE_METADATA, &metadata);
}

/* The text is Markdown to TensorBoard; indented by four blanks it is shown as it is. */
static void put_indented(struct buf *out, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");
		buf_puts(out, "    ");
		buf_add(out, text, n);
		buf_puts(out, "\n");
		text += n + (text[n] != '\0');
	}
}

void exports_tf_text(struct buf *out, double time, int64_t step, const char *tag, const char *text)
{
	struct buf summary = BUF_INIT, value = BUF_INIT, tensor = BUF_INIT, shape = BUF_INIT;
	struct buf content = BUF_INIT, shown = BUF_INIT;
	put_indented(&shown, text);
	exports_pb_text(&value, VALUE_TAG, tag);
	exports_pb_int(&tensor, TENSOR_DTYPE, TENSOR_IS_STRING);
	exports_pb_message(&tensor, TENSOR_SHAPE, &shape);
	exports_pb_message(&tensor, TENSOR_STRING, &shown);
	exports_pb_message(&value, VALUE_TENSOR, &tensor);
	put_metadata(&value, "text", &content);
	exports_pb_message(&summary, SUMMARY_VALUE, &value);
	put_summary(out, time, step, &summary);
}

void exports_tf_plugin(struct buf *out, double time, const char *tag, const char *plugin,
		       struct buf *content)
{
	struct buf summary = BUF_INIT, value = BUF_INIT, tensor = BUF_INIT;
	struct buf shape = BUF_INIT, dim = BUF_INIT;
	exports_pb_text(&value, VALUE_TAG, tag);
	exports_pb_int(&tensor, TENSOR_DTYPE, TENSOR_IS_FLOAT);
	exports_pb_int(&dim, DIM_SIZE, 0);
	exports_pb_message(&shape, SHAPE_DIM, &dim);
	exports_pb_message(&tensor, TENSOR_SHAPE, &shape);
	exports_pb_message(&value, VALUE_TENSOR, &tensor);
	put_metadata(&value, plugin, content);
	exports_pb_message(&summary, SUMMARY_VALUE, &value);
	put_summary(out, time, 0, &summary);
}
