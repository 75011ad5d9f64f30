#include "libcomm/device/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

int cuda_check(cudaError_t rc, const char *what, struct err *e)
{
	if (rc == cudaSuccess)
		return 0;
	return err_set(e, rc == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_IO, "CUDA: %s: %s (%s)",
		       what, cudaGetErrorString(rc), cudaGetErrorName(rc));
}

int cuda_use(const struct device *d, struct err *e)
{
	return cuda_check(cudaSetDevice(d->index), "choosing the device", e);
}

static int backend_cuda_open(int index, struct device **out, struct err *e)
{
	int count = 0;
	if (cuda_check(cudaGetDeviceCount(&count), "looking for devices", e))
		return -1;
	if (index < 0 || index >= count)
		return err_set(e, ERR_NOTFOUND,
			       "CUDA device %d: this process sees %d (CUDA_VISIBLE_DEVICES?)",
			       index, count);
	struct device *d = malloc(sizeof *d);
	if (!d)
		return err_set(e, ERR_NOMEM, "no memory for a device");
	d->index = index;
	*out = d;
	return 0;
}

static void cuda_close(struct device *d)
{
	free(d);
}

static void cuda_identify(struct device *d, char id[DEVICE_ID])
{
	struct cudaDeviceProp prop;
	int at = snprintf(id, DEVICE_ID, "cuda-");
	if (cudaGetDeviceProperties(&prop, d->index) != cudaSuccess) {
		/* equal on all ranks, so the library is not used */
		snprintf(id, DEVICE_ID, "cuda-unknown");
		return;
	}
	for (size_t i = 0; i < sizeof prop.uuid.bytes; i++)
		at += snprintf(id + at, (size_t)(DEVICE_ID - at), "%02x",
			       (unsigned char)prop.uuid.bytes[i]);
}

/* --- Streams and events --- */

static int cuda_stream_open(struct device *d, void **stream, struct err *e)
{
	cudaStream_t s;
	int least, greatest;
	if (cuda_use(d, e) ||
	    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
		       "asking for the priorities of streams", e) ||
	    cuda_check(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest),
		       "making a stream", e))
		return -1;
	*stream = s;
	return 0;
}

static void cuda_stream_close(struct device *d, void *stream)
{
	if (cuda_use(d, NULL) == 0 && cudaStreamSynchronize(stream) == cudaSuccess)
		cudaStreamDestroy(stream);
}

static int cuda_event_open(struct device *d, void **event, struct err *e)
{
	cudaEvent_t ev;
	if (cuda_use(d, e) ||
	    cuda_check(cudaEventCreateWithFlags(&ev, cudaEventDisableTiming), "making an event", e))
		return -1;
	*event = ev;
	return 0;
}

static void cuda_event_close(struct device *d, void *event)
{
	if (cuda_use(d, NULL) == 0)
		cudaEventDestroy(event);
}

static int cuda_event_record(struct device *d, void *event, void *stream, struct err *e)
{
	return cuda_use(d, e) ? -1
			      : cuda_check(cudaEventRecord(event, stream), "recording an event", e);
}

static int cuda_event_done(struct device *d, void *event, struct err *e)
{
	if (cuda_use(d, e))
		return -1;
	cudaError_t rc = cudaEventQuery(event);
	return rc == cudaErrorNotReady                              ? 0
	       : cuda_check(rc, "what was queued on the device", e) ? -1
								    : 1;
}

static int cuda_stream_wait(struct device *d, void *stream, void *event, struct err *e)
{
	return cuda_use(d, e) ? -1
			      : cuda_check(cudaStreamWaitEvent(stream, event, 0),
					   "waiting for an event", e);
}

static int cuda_graph_wait(struct device *d, void *stream, void *event, struct err *e)
{
	return cuda_use(d, e)
		       ? -1
		       : cuda_check(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal),
				    "waiting for an event in a graph", e);
}

/* --- Memory --- */

static int cuda_pin(struct device *d, void *memory, size_t bytes, struct err *e)
{
	return cuda_use(d, e)
		       ? -1
		       : cuda_check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable),
				    "pinning memory of the host", e);
}

/* Waits for the device itself. */
static void cuda_unpin(struct device *d, void *memory)
{
	if (cuda_use(d, NULL) == 0)
		cudaHostUnregister(memory);
}

static int cuda_copy(struct device *d, void *to, const void *from, size_t bytes, void *stream,
		     struct err *e)
{
	return cuda_use(d, e)
		       ? -1
		       : cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
				    "copying", e);
}

static const struct comm_device cuda_device = {
	.name = "cuda",
	.open = backend_cuda_open,
	.close = cuda_close,
	.identify = cuda_identify,
	.stream_open = cuda_stream_open,
	.stream_close = cuda_stream_close,
	.event_open = cuda_event_open,
	.event_close = cuda_event_close,
	.event_record = cuda_event_record,
	.event_done = cuda_event_done,
	.stream_wait = cuda_stream_wait,
	.graph_wait = cuda_graph_wait,
	.pin = cuda_pin,
	.unpin = cuda_unpin,
	.copy = cuda_copy,
#ifdef HAVE_NCCL
	.collectives = &cuda_nccl,
#endif
};

__attribute__((visibility("default"))) const struct comm_device *muster_comm_cuda(void)
{
	return &cuda_device;
}
