/*
 * nvml_api — the functions of NVIDIA's management library that muster calls, and loading it.
 *
 * The declarations repeat those of nvml.h in the CUDA toolkit, because that header is missing where
 * there is no toolkit. Where it exists, tests/unit/topo/test_nvml_abi.c compares every size,
 * offset, value and function type below with it. Only functions that exist since driver 450 are
 * required; newer ones are NULL if the library lacks them.
 *
 * To add a function: a line in NVML_CALLS, its types and values here, their lines in the test, and
 * its test double in tests/doubles/nvml.c.
 */
#ifndef MUSTER_TOPO_DISCOVER_NVML_API_H
#define MUSTER_TOPO_DISCOVER_NVML_API_H

#include "base/err.h"

typedef struct nvml_device *nvml_device_t;
typedef struct nvml_events *nvml_events_t;
/* Enumerations of nvml.h; none has negative values. */
typedef unsigned nvml_code_t, nvml_state_t, nvml_peer_t, nvml_p2p_index_t, nvml_p2p_t, nvml_error_t,
	nvml_span_t, nvml_cause_t, nvml_counter_t, nvml_mode_t, nvml_sensor_t, nvml_threshold_t,
	nvml_clock_t;

enum { NVML_OK = 0, NVML_NOT_SUPPORTED = 3, NVML_NOT_PERMITTED = 4, NVML_NOT_ENOUGH_ROOM = 7 };
enum { NVML_OFF = 0, NVML_ON = 1 };
enum { NVML_PEER_GPU = 0, NVML_PEER_SWITCH = 2 };
enum { NVML_P2P_READ = 0, NVML_P2P_FINE = 0, NVML_P2P_UNTOLD = 6 };
enum { NVML_JOINED = 3 };                                  /* state of struct nvml_fabric */
enum { NVML_CORRECTED = 0, NVML_UNCORRECTED = 1 };         /* nvml_error_t */
enum { NVML_SINCE_LOAD = 0, NVML_EVER = 1 };               /* nvml_span_t */
enum { NVML_RETIRED_SINGLE = 0, NVML_RETIRED_DOUBLE = 1 }; /* nvml_cause_t */
/* nvml_counter_t */
enum { NVML_REPLAYS = 0, NVML_RECOVERIES = 1, NVML_CRC_FLITS = 2, NVML_CRC_DATA = 3 };
enum { NVML_COMPUTE_PROHIBITED = 2 }; /* nvml_mode_t */
/* nvml_sensor_t, nvml_threshold_t */
enum { NVML_TEMPERATURE = 0, NVML_SLOWDOWN_AT = 1 };
/* Bits of the reasons for reduced clocks. */
enum {
	NVML_SLOW_POWER_CAP = 0x4,
	NVML_SLOW_HARDWARE = 0x8,
	NVML_SLOW_SW_THERMAL = 0x20,
	NVML_SLOW_HW_THERMAL = 0x40,
	NVML_SLOW_POWER_BRAKE = 0x80
};
/* Versions of NVLink as nvmlDeviceGetNvLinkVersion numbers them: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0,
 * 5.0, 6.0. */
enum { NVML_NVLINKS = 9 };

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

struct nvml_pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem; /* id: device << 16 | vendor */
	char text[32];
};

struct nvml_fabric {
	unsigned version;
	unsigned char cluster[16];
	nvml_code_t status;
	unsigned clique;
	unsigned char state;
	unsigned health;
};

struct nvml_process {
	unsigned pid;
	unsigned long long bytes; /* all bits set: unknown */
	unsigned instance, compute_instance;
};

struct nvml_event {
	nvml_device_t device;
	unsigned long long type, data; /* data: the number of an XID */
	unsigned instance, compute_instance;
};
#define NVML_EVENT_XID 8ull
enum { NVML_SM_CLOCK = 1 };

#define NVML_VERSION(type, number) (unsigned)(sizeof(type) | (unsigned)(number) << 24)

/* result, member, name in the library, required, arguments */
#define NVML_CALLS(X) \
	X(nvml_code_t, init, nvmlInit_v2, true, (void)) \
	X(nvml_code_t, shutdown, nvmlShutdown, true, (void)) \
	X(const char *, error, nvmlErrorString, false, (nvml_code_t code)) \
	X(nvml_code_t, driver, nvmlSystemGetDriverVersion, false, (char *text, unsigned size)) \
	X(nvml_code_t, cuda, nvmlSystemGetCudaDriverVersion_v2, false, (int *version)) \
	X(nvml_code_t, process_name, nvmlSystemGetProcessName, false, \
	  (unsigned pid, char *text, unsigned size)) \
	X(nvml_code_t, count, nvmlDeviceGetCount_v2, true, (unsigned *n)) \
	X(nvml_code_t, handle, nvmlDeviceGetHandleByIndex_v2, true, \
	  (unsigned index, nvml_device_t *out)) \
	X(nvml_code_t, name, nvmlDeviceGetName, true, \
	  (nvml_device_t d, char *text, unsigned size)) \
	X(nvml_code_t, memory, nvmlDeviceGetMemoryInfo, true, \
	  (nvml_device_t d, struct nvml_memory * out)) \
	X(nvml_code_t, memory_v2, nvmlDeviceGetMemoryInfo_v2, false, \
	  (nvml_device_t d, struct nvml_memory_v2 * out)) \
	X(nvml_code_t, pci, nvmlDeviceGetPciInfo_v3, true, \
	  (nvml_device_t d, struct nvml_pci * out)) \
	X(nvml_code_t, uuid, nvmlDeviceGetUUID, false, \
	  (nvml_device_t d, char *text, unsigned size)) \
	X(nvml_code_t, capability, nvmlDeviceGetCudaComputeCapability, false, \
	  (nvml_device_t d, int *major, int *minor)) \
	X(nvml_code_t, pcie, nvmlDeviceGetCurrPcieLinkGeneration, false, \
	  (nvml_device_t d, unsigned *generation)) \
	X(nvml_code_t, pcie_width, nvmlDeviceGetCurrPcieLinkWidth, false, \
	  (nvml_device_t d, unsigned *width)) \
	X(nvml_code_t, pcie_most, nvmlDeviceGetMaxPcieLinkGeneration, false, \
	  (nvml_device_t d, unsigned *generation)) \
	X(nvml_code_t, pcie_width_most, nvmlDeviceGetMaxPcieLinkWidth, false, \
	  (nvml_device_t d, unsigned *width)) \
	X(nvml_code_t, link_state, nvmlDeviceGetNvLinkState, false, \
	  (nvml_device_t d, unsigned link, nvml_state_t *active)) \
	X(nvml_code_t, link_remote, nvmlDeviceGetNvLinkRemotePciInfo_v2, false, \
	  (nvml_device_t d, unsigned link, struct nvml_pci *out)) \
	X(nvml_code_t, link_type, nvmlDeviceGetNvLinkRemoteDeviceType, false, \
	  (nvml_device_t d, unsigned link, nvml_peer_t *type)) \
	X(nvml_code_t, link_version, nvmlDeviceGetNvLinkVersion, false, \
	  (nvml_device_t d, unsigned link, unsigned *version)) \
	X(nvml_code_t, link_errors, nvmlDeviceGetNvLinkErrorCounter, false, \
	  (nvml_device_t d, unsigned link, nvml_counter_t which, unsigned long long *n)) \
	X(nvml_code_t, p2p, nvmlDeviceGetP2PStatus, false, \
	  (nvml_device_t a, nvml_device_t b, nvml_p2p_index_t what, nvml_p2p_t * status)) \
	X(nvml_code_t, fabric, nvmlDeviceGetGpuFabricInfoV, false, \
	  (nvml_device_t d, struct nvml_fabric * out)) \
	X(nvml_code_t, ecc, nvmlDeviceGetEccMode, false, \
	  (nvml_device_t d, nvml_state_t * now, nvml_state_t * next)) \
	X(nvml_code_t, ecc_errors, nvmlDeviceGetTotalEccErrors, false, \
	  (nvml_device_t d, nvml_error_t error, nvml_span_t span, unsigned long long *n)) \
	X(nvml_code_t, retired, nvmlDeviceGetRetiredPages, false, \
	  (nvml_device_t d, nvml_cause_t cause, unsigned *n, unsigned long long *addresses)) \
	X(nvml_code_t, retire_pending, nvmlDeviceGetRetiredPagesPendingStatus, false, \
	  (nvml_device_t d, nvml_state_t * pending)) \
	X(nvml_code_t, remapped, nvmlDeviceGetRemappedRows, false, \
	  (nvml_device_t d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, \
	   unsigned *failed)) \
	X(nvml_code_t, slow_v1, nvmlDeviceGetCurrentClocksThrottleReasons, false, \
	  (nvml_device_t d, unsigned long long *reasons)) \
	X(nvml_code_t, slow, nvmlDeviceGetCurrentClocksEventReasons, false, \
	  (nvml_device_t d, unsigned long long *reasons)) \
	X(nvml_code_t, clock, nvmlDeviceGetClockInfo, false, \
	  (nvml_device_t d, nvml_clock_t which, unsigned *mhz)) \
	X(nvml_code_t, events_create, nvmlEventSetCreate, false, (nvml_events_t * out)) \
	X(nvml_code_t, events_register, nvmlDeviceRegisterEvents, false, \
	  (nvml_device_t d, unsigned long long types, nvml_events_t set)) \
	X(nvml_code_t, events_wait, nvmlEventSetWait_v2, false, \
	  (nvml_events_t set, struct nvml_event * out, unsigned milliseconds)) \
	X(nvml_code_t, events_free, nvmlEventSetFree, false, (nvml_events_t set)) \
	X(nvml_code_t, temperature, nvmlDeviceGetTemperature, false, \
	  (nvml_device_t d, nvml_sensor_t sensor, unsigned *celsius)) \
	X(nvml_code_t, temperature_limit, nvmlDeviceGetTemperatureThreshold, false, \
	  (nvml_device_t d, nvml_threshold_t which, unsigned *celsius)) \
	X(nvml_code_t, power, nvmlDeviceGetPowerUsage, false, \
	  (nvml_device_t d, unsigned *milliwatts)) \
	X(nvml_code_t, power_limit, nvmlDeviceGetEnforcedPowerLimit, false, \
	  (nvml_device_t d, unsigned *milliwatts)) \
	X(nvml_code_t, power_default, nvmlDeviceGetPowerManagementDefaultLimit, false, \
	  (nvml_device_t d, unsigned *milliwatts)) \
	X(nvml_code_t, persistence, nvmlDeviceGetPersistenceMode, false, \
	  (nvml_device_t d, nvml_state_t * mode)) \
	X(nvml_code_t, compute_mode, nvmlDeviceGetComputeMode, false, \
	  (nvml_device_t d, nvml_mode_t * mode)) \
	X(nvml_code_t, mig, nvmlDeviceGetMigMode, false, \
	  (nvml_device_t d, unsigned *now, unsigned *next)) \
	X(nvml_code_t, mig_most, nvmlDeviceGetMaxMigDeviceCount, false, \
	  (nvml_device_t d, unsigned *n)) \
	X(nvml_code_t, mig_handle, nvmlDeviceGetMigDeviceHandleByIndex, false, \
	  (nvml_device_t d, unsigned index, nvml_device_t *out)) \
	X(nvml_code_t, processes, nvmlDeviceGetComputeRunningProcesses_v3, false, \
	  (nvml_device_t d, unsigned *n, struct nvml_process *out))

struct nvml_api {
	void *library;
#define NVML_MEMBER(result, member, symbol, needed, arguments) result(*member) arguments;
	NVML_CALLS(NVML_MEMBER)
#undef NVML_MEMBER
};

/* Loads and initializes the library. ERR_NOTFOUND: there is none; ERR_UNSUPPORTED: it fails. */
int topo_nvml_open(const char *library, struct nvml_api *out, struct err *e);
void topo_nvml_close(struct nvml_api *a);
/* Sets ERR_UNSUPPORTED with the driver's text for a result code; returns -1. */
int topo_nvml_failed(const struct nvml_api *a, const char *what, nvml_code_t code, struct err *e);
/* "0000:1b:00.0" from the numbers, because the library's text has more digits of the domain. */
void topo_nvml_bus(const struct nvml_pci *p, char out[16]);
/* The generation of an NVLink version, 4 for 4.0; 0: unknown. */
int topo_nvml_generation(unsigned version);

#endif
