EXPECTED = {"shape": "(8, 4)", "edges": "True"}


def use() -> dict[str, str]:
    """Load a wheel that counts on the machine's libraries of OpenGL and GLib."""
    import cv2
    import numpy as np

    image = np.zeros((16, 8), np.uint8)
    image[4:12, 2:6] = 255
    return {
        "shape": str(cv2.resize(image, (4, 8)).shape),
        "edges": str(bool(cv2.Canny(image, 100, 200).any())),
    }
