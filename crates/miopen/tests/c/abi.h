// What these tests call of libMIOpen, declared from its public header's documentation (MIOpen 2.16 to 3.5: the calls
// here did not change). With -DREAL_HEADER the vendor's header takes the declarations' place, so that a compiler can
// hold the tests' calls against it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef REAL_HEADER
#define __HIP_PLATFORM_AMD__
typedef struct miopenTensorArgument_t miopenTensorArgument_t; // that header is C++ here
#include <miopen/miopen.h>
#else

typedef int miopenStatus_t;
enum {
    miopenStatusSuccess = 0,
    miopenStatusBadParm = 3,
    miopenStatusNotImplemented = 6,
    miopenStatusUnsupportedOp = 8,
};
typedef int miopenDataType_t;
enum { miopenHalf = 0, miopenFloat = 1, miopenInt8 = 3, miopenBFloat16 = 5 };
typedef int miopenConvolutionMode_t;
enum { miopenConvolution = 0, miopenTranspose = 1, miopenGroupConv = 2, miopenDepthwise = 3 };
typedef int miopenBatchNormMode_t;
enum { miopenBNPerActivation = 0, miopenBNSpatial = 1 };
typedef int miopenConvolutionAttrib_t;
enum { MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC = 1 };
typedef int miopenConvolutionFindMode_t;
enum { miopenConvolutionFindModeNormal = 1 };
typedef int miopenConvFwdAlgorithm_t, miopenConvBwdDataAlgorithm_t, miopenConvBwdWeightsAlgorithm_t;
typedef int miopenConvAlgorithm_t;
enum { miopenConvolutionAlgoGEMM = 0 };
typedef int miopenActivationMode_t;
enum { miopenActivationLOGISTIC = 1, miopenActivationRELU = 3 };
typedef int miopenPoolingMode_t;
enum { miopenPoolingMax = 0, miopenPoolingAverage = 1 };
typedef int miopenSoftmaxAlgorithm_t, miopenSoftmaxMode_t;
enum { MIOPEN_SOFTMAX_ACCURATE = 1, MIOPEN_SOFTMAX_MODE_CHANNEL = 1 };
typedef int miopenLRNMode_t;
enum { miopenLRNCrossChannel = 1 };
typedef int miopenTensorOp_t;
enum { miopenTensorOpAdd = 0 };
typedef int miopenReduceTensorOp_t, miopenNanPropagation_t, miopenReduceTensorIndices_t, miopenIndicesType_t;
enum { MIOPEN_REDUCE_TENSOR_AVG = 5, MIOPEN_NOT_PROPAGATE_NAN = 0, MIOPEN_REDUCE_TENSOR_NO_INDICES = 0, MIOPEN_32BIT_INDICES = 0 };
typedef int miopenFusionDirection_t;
enum { miopenVerticalFusion = 0 };

typedef struct {
    union {
        miopenConvFwdAlgorithm_t fwd_algo;
        miopenConvBwdWeightsAlgorithm_t bwd_weights_algo;
        miopenConvBwdDataAlgorithm_t bwd_data_algo;
    };
    float time;    // milliseconds
    size_t memory; // workspace bytes
} miopenConvAlgoPerf_t;

typedef struct {
    float time; // milliseconds
    size_t workspace_size;
    uint64_t solution_id;
    miopenConvAlgorithm_t algorithm;
} miopenConvSolution_t;

typedef struct miopenHandle *miopenHandle_t;
typedef struct miopenTensorDescriptor *miopenTensorDescriptor_t;
typedef struct miopenConvolutionDescriptor *miopenConvolutionDescriptor_t;
typedef struct miopenFusionPlanDescriptor *miopenFusionPlanDescriptor_t;
typedef struct miopenFusionOpDescriptor *miopenFusionOpDescriptor_t;
typedef struct miopenOperatorArgs *miopenOperatorArgs_t;
typedef struct miopenProblem *miopenProblem_t;
typedef struct miopenSolution *miopenSolution_t;
typedef struct miopenFindOptions *miopenFindOptions_t;
typedef int miopenProblemDirection_t;
enum { miopenProblemDirectionForward = 0 };
typedef int miopenTensorArgumentId_t;
enum { miopenTensorConvolutionX = 1, miopenTensorConvolutionW = 2, miopenTensorConvolutionY = 3 };
typedef struct {
    miopenTensorArgumentId_t id;
    struct miopenTensorDescriptor **descriptor;
    void *buffer;
} miopenTensorArgument_t;
typedef struct miopenActivationDescriptor *miopenActivationDescriptor_t;
typedef struct miopenPoolingDescriptor *miopenPoolingDescriptor_t;
typedef struct miopenLRNDescriptor *miopenLRNDescriptor_t;
typedef struct miopenReduceTensorDescriptor *miopenReduceTensorDescriptor_t;
typedef struct ihipStream_t *hipStream_t;

#define HANDLE miopenHandle_t
#define TENSOR const miopenTensorDescriptor_t
#define CONV const miopenConvolutionDescriptor_t

miopenStatus_t miopenGetVersion(size_t *major, size_t *minor, size_t *patch);
const char *miopenGetErrorString(miopenStatus_t);
miopenStatus_t miopenCreate(miopenHandle_t *);
miopenStatus_t miopenCreateWithStream(miopenHandle_t *, hipStream_t);
miopenStatus_t miopenDestroy(HANDLE);
miopenStatus_t miopenSetStream(HANDLE, hipStream_t);
miopenStatus_t miopenGetStream(HANDLE, hipStream_t *);

miopenStatus_t miopenCreateTensorDescriptor(miopenTensorDescriptor_t *);
miopenStatus_t miopenDestroyTensorDescriptor(miopenTensorDescriptor_t);
miopenStatus_t miopenSetTensorDescriptor(miopenTensorDescriptor_t, miopenDataType_t, int dims, const int *lengths,
                                         const int *strides);
miopenStatus_t miopenSet4dTensorDescriptor(miopenTensorDescriptor_t, miopenDataType_t, int n, int c, int h, int w);

miopenStatus_t miopenCreateConvolutionDescriptor(miopenConvolutionDescriptor_t *);
miopenStatus_t miopenDestroyConvolutionDescriptor(miopenConvolutionDescriptor_t);
miopenStatus_t miopenInitConvolutionNdDescriptor(miopenConvolutionDescriptor_t, int dims, const int *pad,
                                                 const int *stride, const int *dilation, miopenConvolutionMode_t);
miopenStatus_t miopenSetConvolutionGroupCount(miopenConvolutionDescriptor_t, int);
miopenStatus_t miopenSetConvolutionAttribute(miopenConvolutionDescriptor_t, const miopenConvolutionAttrib_t, int);
miopenStatus_t miopenSetConvolutionFindMode(miopenConvolutionDescriptor_t, miopenConvolutionFindMode_t);
miopenStatus_t miopenGetConvolutionForwardOutputDim(miopenConvolutionDescriptor_t, TENSOR x, TENSOR w, int *, int *, int *,
                                                    int *);

// The three passes: two operands, the convolution, the result.
#define PASS(Name, A, B, Result, Algo)                                                                                  \
    miopenStatus_t miopenConvolution##Name##GetWorkSpaceSize(HANDLE, TENSOR, TENSOR, CONV, TENSOR, size_t *);           \
    miopenStatus_t miopenConvolution##Name##GetSolutionCount(HANDLE, TENSOR, TENSOR, CONV, TENSOR, size_t *);           \
    miopenStatus_t miopenConvolution##Name##GetSolution(HANDLE, TENSOR, TENSOR, CONV, TENSOR, const size_t, size_t *,   \
                                                        miopenConvSolution_t *);                                        \
    miopenStatus_t miopenConvolution##Name##GetSolutionWorkspaceSize(HANDLE, TENSOR, TENSOR, CONV, TENSOR,              \
                                                                     const uint64_t, size_t *);                         \
    miopenStatus_t miopenConvolution##Name##CompileSolution(HANDLE, TENSOR, TENSOR, CONV, TENSOR, const uint64_t);      \
    miopenStatus_t miopenConvolution##Name##Immediate(HANDLE, TENSOR, const void *A, TENSOR, const void *B, CONV,       \
                                                      TENSOR, void *Result, void *workspace, size_t,                    \
                                                      const uint64_t solution);                                         \
    miopenStatus_t miopenFindConvolution##Name##Algorithm(HANDLE, TENSOR, const void *A, TENSOR, const void *B, CONV,   \
                                                          TENSOR, void *Result, const int requested, int *returned,     \
                                                          miopenConvAlgoPerf_t *, void *workspace, size_t,              \
                                                          bool exhaustive);                                             \
    miopenStatus_t miopenConvolution##Name(HANDLE, const void *alpha, TENSOR, const void *A, TENSOR, const void *B,     \
                                           CONV, Algo, const void *beta, TENSOR, void *Result, void *workspace,         \
                                           size_t);
PASS(Forward, x, w, y, miopenConvFwdAlgorithm_t)
PASS(BackwardData, dy, w, dx, miopenConvBwdDataAlgorithm_t)
PASS(BackwardWeights, dy, x, dw, miopenConvBwdWeightsAlgorithm_t)
#undef PASS

miopenStatus_t miopenCreateConvProblem(miopenProblem_t *, miopenConvolutionDescriptor_t, miopenProblemDirection_t);
miopenStatus_t miopenDestroyProblem(miopenProblem_t);
miopenStatus_t miopenSetProblemTensorDescriptor(miopenProblem_t, miopenTensorArgumentId_t, TENSOR);
miopenStatus_t miopenFindSolutions(HANDLE, miopenProblem_t, miopenFindOptions_t, miopenSolution_t *, size_t *count,
                                   size_t most);
miopenStatus_t miopenGetSolutionWorkspaceSize(miopenSolution_t, size_t *);
miopenStatus_t miopenRunSolution(HANDLE, miopenSolution_t, size_t count, const miopenTensorArgument_t *, void *workspace,
                                 size_t);
miopenStatus_t miopenDestroySolution(miopenSolution_t);

miopenStatus_t miopenConvolutionForwardBias(HANDLE, const void *alpha, TENSOR, const void *b, const void *beta, TENSOR,
                                            void *y);
miopenStatus_t miopenConvolutionBackwardBias(HANDLE, const void *alpha, TENSOR, const void *dy, const void *beta, TENSOR,
                                             void *db);

miopenStatus_t miopenBatchNormalizationForwardTraining(HANDLE, miopenBatchNormMode_t, void *alpha, void *beta, TENSOR,
                                                       const void *x, TENSOR, void *y, TENSOR, void *scale, void *bias,
                                                       double average_factor, void *running_mean, void *running_variance,
                                                       double epsilon, void *save_mean, void *save_inverse_deviation);
miopenStatus_t miopenBatchNormalizationForwardInference(HANDLE, miopenBatchNormMode_t, void *alpha, void *beta, TENSOR,
                                                        const void *x, TENSOR, void *y, TENSOR, void *scale, void *bias,
                                                        void *mean, void *variance, double epsilon);
miopenStatus_t miopenBatchNormalizationBackward(HANDLE, miopenBatchNormMode_t, const void *alpha_data,
                                                const void *beta_data, const void *alpha_param, const void *beta_param,
                                                TENSOR, const void *x, TENSOR, const void *dy, TENSOR, void *dx, TENSOR,
                                                const void *scale, void *d_scale, void *d_bias, double epsilon,
                                                const void *save_mean, const void *save_inverse_deviation);

miopenStatus_t miopenCreateActivationDescriptor(miopenActivationDescriptor_t *);
miopenStatus_t miopenSetActivationDescriptor(const miopenActivationDescriptor_t, miopenActivationMode_t, double, double,
                                             double);
miopenStatus_t miopenDestroyActivationDescriptor(miopenActivationDescriptor_t);
miopenStatus_t miopenActivationForward(HANDLE, const miopenActivationDescriptor_t, const void *alpha, TENSOR, const void *x,
                                       const void *beta, TENSOR, void *y);
miopenStatus_t miopenActivationBackward(HANDLE, const miopenActivationDescriptor_t, const void *alpha, TENSOR, const void *y,
                                        TENSOR, const void *dy, TENSOR, const void *x, const void *beta, TENSOR, void *dx);

miopenStatus_t miopenCreatePoolingDescriptor(miopenPoolingDescriptor_t *);
miopenStatus_t miopenSet2dPoolingDescriptor(miopenPoolingDescriptor_t, miopenPoolingMode_t, int height, int width, int pad_h,
                                            int pad_w, int stride_h, int stride_w);
miopenStatus_t miopenDestroyPoolingDescriptor(miopenPoolingDescriptor_t);
miopenStatus_t miopenGetPoolingForwardOutputDim(const miopenPoolingDescriptor_t, TENSOR, int *, int *, int *, int *);
miopenStatus_t miopenPoolingGetWorkSpaceSizeV2(const miopenPoolingDescriptor_t, TENSOR y, size_t *);
miopenStatus_t miopenPoolingForward(HANDLE, const miopenPoolingDescriptor_t, const void *alpha, TENSOR, const void *x,
                                    const void *beta, TENSOR, void *y, bool backward, void *workspace, size_t);
miopenStatus_t miopenPoolingBackward(HANDLE, const miopenPoolingDescriptor_t, const void *alpha, TENSOR, const void *y,
                                     TENSOR, const void *dy, TENSOR, const void *x, const void *beta, TENSOR, void *dx,
                                     void *workspace);

miopenStatus_t miopenSoftmaxForward_V2(HANDLE, const void *alpha, TENSOR, const void *x, const void *beta, TENSOR, void *y,
                                       miopenSoftmaxAlgorithm_t, miopenSoftmaxMode_t);
miopenStatus_t miopenSoftmaxBackward_V2(HANDLE, const void *alpha, TENSOR, const void *y, TENSOR, const void *dy,
                                        const void *beta, TENSOR, void *dx, miopenSoftmaxAlgorithm_t, miopenSoftmaxMode_t);

miopenStatus_t miopenCreateLRNDescriptor(miopenLRNDescriptor_t *);
miopenStatus_t miopenSetLRNDescriptor(const miopenLRNDescriptor_t, miopenLRNMode_t, unsigned n, double alpha, double beta,
                                      double k);
miopenStatus_t miopenDestroyLRNDescriptor(miopenLRNDescriptor_t);
miopenStatus_t miopenLRNForward(HANDLE, const miopenLRNDescriptor_t, const void *alpha, TENSOR, const void *x,
                                const void *beta, TENSOR, void *y, bool backward, void *workspace);

miopenStatus_t miopenOpTensor(HANDLE, miopenTensorOp_t, const void *alpha1, TENSOR, const void *a, const void *alpha2, TENSOR,
                              const void *b, const void *beta, TENSOR, void *c);
miopenStatus_t miopenSetTensor(HANDLE, TENSOR, void *y, const void *alpha);
miopenStatus_t miopenScaleTensor(HANDLE, TENSOR, void *y, const void *alpha);

miopenStatus_t miopenCreateReduceTensorDescriptor(miopenReduceTensorDescriptor_t *);
miopenStatus_t miopenSetReduceTensorDescriptor(miopenReduceTensorDescriptor_t, miopenReduceTensorOp_t, miopenDataType_t,
                                               miopenNanPropagation_t, miopenReduceTensorIndices_t, miopenIndicesType_t);
miopenStatus_t miopenDestroyReduceTensorDescriptor(miopenReduceTensorDescriptor_t);
miopenStatus_t miopenGetReductionWorkspaceSize(HANDLE, const miopenReduceTensorDescriptor_t, TENSOR a, TENSOR c, size_t *);
miopenStatus_t miopenReduceTensor(HANDLE, const miopenReduceTensorDescriptor_t, void *indices, size_t, void *workspace,
                                  size_t, const void *alpha, TENSOR, const void *a, const void *beta, TENSOR, void *c);

miopenStatus_t miopenCreateFusionPlan(miopenFusionPlanDescriptor_t *, const miopenFusionDirection_t, TENSOR input);
miopenStatus_t miopenDestroyFusionPlan(miopenFusionPlanDescriptor_t);
miopenStatus_t miopenCompileFusionPlan(HANDLE, miopenFusionPlanDescriptor_t);
miopenStatus_t miopenCreateOpConvForward(miopenFusionPlanDescriptor_t, miopenFusionOpDescriptor_t *,
                                         miopenConvolutionDescriptor_t, TENSOR w);
miopenStatus_t miopenCreateOpBiasForward(miopenFusionPlanDescriptor_t, miopenFusionOpDescriptor_t *, TENSOR b);
miopenStatus_t miopenCreateOpActivationForward(miopenFusionPlanDescriptor_t, miopenFusionOpDescriptor_t *,
                                               miopenActivationMode_t);
miopenStatus_t miopenCreateOperatorArgs(miopenOperatorArgs_t *);
miopenStatus_t miopenDestroyOperatorArgs(miopenOperatorArgs_t);
miopenStatus_t miopenSetOpArgsConvForward(miopenOperatorArgs_t, const miopenFusionOpDescriptor_t, const void *alpha,
                                          const void *beta, const void *w);
miopenStatus_t miopenSetOpArgsBiasForward(miopenOperatorArgs_t, const miopenFusionOpDescriptor_t, const void *alpha,
                                          const void *beta, const void *bias);
miopenStatus_t miopenSetOpArgsActivForward(miopenOperatorArgs_t, const miopenFusionOpDescriptor_t, const void *alpha,
                                           const void *beta, double, double, double);
miopenStatus_t miopenExecuteFusionPlan(const HANDLE, const miopenFusionPlanDescriptor_t, TENSOR, const void *input, TENSOR,
                                       void *output, miopenOperatorArgs_t);

#undef HANDLE
#undef TENSOR
#undef CONV

typedef int hipError_t;
enum { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 };
hipError_t hipMalloc(void **, size_t);
hipError_t hipFree(void *);
hipError_t hipMemcpy(void *to, const void *from, size_t, int kind);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t, int kind, hipStream_t);
hipError_t hipMemsetAsync(void *, int byte, size_t, hipStream_t);
hipError_t hipStreamCreate(hipStream_t *);
hipError_t hipStreamDestroy(hipStream_t);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipDeviceSynchronize(void);
typedef struct ihipEvent_t *hipEvent_t;
hipError_t hipEventCreate(hipEvent_t *);
hipError_t hipEventRecord(hipEvent_t, hipStream_t);
hipError_t hipEventElapsedTime(float *ms, hipEvent_t from, hipEvent_t to);

#endif
