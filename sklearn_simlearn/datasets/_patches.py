"""Counts of visual words in patches of images."""

import numpy as np
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits


def count_words(
    descriptors: np.ndarray,
    image_of: np.ndarray,
    n_images: int,
    kmeans: KMeans,
    n_training: int,
) -> tuple[sparse.csr_array, np.ndarray]:
    """Learn words from some patches, and count the words of all patches.

    Parameters
    ----------
    descriptors : ndarray of shape (n_patches, n_components)
        Descriptors of the patches.

    image_of : ndarray of shape (n_patches,)
        Image of each patch.

    n_images : int
        Number of images.

    kmeans : KMeans
        Clusters of patches, not fitted, with any `random_state`.

    n_training : int
        Number of patches, drawn at random, from which words are learned.

    Returns
    -------
    X : csr_array of shape (n_images, n_words)
        Counts of the words in each image.

    words : ndarray of shape (n_words, n_components)
        The words.
    """
    rng = check_random_state(0)
    chosen = rng.choice(len(descriptors), n_training, replace=False)
    # Use one thread: with more, the order of summation would vary, and the last bits of
    # a mean can change the word of a patch.
    with threadpool_limits(limits=1):
        kmeans.set_params(random_state=rng).fit(descriptors[chosen])
        word_of = kmeans.predict(descriptors)
    X = sparse.coo_array(
        (np.ones(len(word_of)), (image_of.astype(np.int32), word_of)),
        shape=(n_images, kmeans.n_clusters),
    )
    return X.tocsr(), kmeans.cluster_centers_
